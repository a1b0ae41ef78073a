//! Answers behind a change of an engine's model.
//!
//! An access log has a line for every request, which says nothing but that one was answered. Behind a change of the weights
//! or of an adapter the first few of them say something that no counter says: requests were served with the new model before
//! the prefix cache was emptied. Only those are told.

use super::emit::{OWN, Statement, Telling};
use kvprov_model::observation::{AdminClass, Body, Outcome, RequestLeg};

/// Answers that are told behind one change.
const TOLD: u8 = 16;
/// Status of an answer that templates mark as one.
const OK: i64 = 200;

/// How many answers are still to be told.
#[derive(Debug, Default)]
pub(super) struct Answers(u8);

// === impl Answers ===

impl Answers {
    /// Takes note of what a line said before.
    pub(super) fn note(&mut self, body: &Body) {
        let Body::AdminCall(call) = body else { return };
        match (&call.class, &call.outcome) {
            (Some(AdminClass::WeightsUpdate | AdminClass::LoraLoad), outcome)
                if *outcome != Some(Outcome::Failed) =>
            {
                self.0 = TOLD;
            }
            (Some(AdminClass::CacheReset), Some(Outcome::Succeeded)) => self.0 = 0,
            _ => {}
        }
    }

    /// Whether the next answer is to be told.
    pub(super) fn is_wanted(&self) -> bool {
        self.0 > 0
    }

    /// The observation of an answer.
    pub(super) fn told(&mut self, statement: &Statement<'_>) -> Telling {
        self.0 = self.0.saturating_sub(1);
        let leg = RequestLeg { status: Some(OK), ..RequestLeg::default() };
        statement.tell(
            OWN,
            "answered a request, with the model that it has since".to_owned(),
            Body::RequestLeg(leg),
        )
    }
}
