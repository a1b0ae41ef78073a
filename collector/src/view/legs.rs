//! Legs of requests among the observations of workers, found once and shared with what was read.

use super::Selected;
use kvprov_model::observation::{Body, Observation, RequestLeg};

/// The legs.
#[derive(Debug, Default)]
pub struct Legs {
    /// What was read, and where legs stand in it.
    among: Vec<(Selected, Vec<usize>)>,
}

// === impl Legs ===

impl Legs {
    /// Adds those among some observations.
    pub(super) fn add(&mut self, observations: Selected) {
        let is_leg = |(at, observation): (usize, &Observation)| {
            matches!(observation.body, Body::RequestLeg(_)).then_some(at)
        };
        let places: Vec<usize> = observations.iter().enumerate().filter_map(is_leg).collect();
        if !places.is_empty() {
            self.among.push((observations, places));
        }
    }

    /// Every leg with the observation that tells it: worker by worker, each in the order of time.
    pub fn iter(&self) -> impl Iterator<Item = (&Observation, &RequestLeg)> {
        self.among.iter().flat_map(|(observations, places)| {
            places.iter().filter_map(|at| match observations.get(*at) {
                Some(observation) => match &observation.body {
                    Body::RequestLeg(leg) => Some((observation, leg)),
                    _ => None,
                },
                None => None,
            })
        })
    }
}
