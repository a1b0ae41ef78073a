//! Where a worker serves what may be read over HTTP, as its settings say.
//!
//! A setting says what should be; whether the worker holds the port is for the reader to see. Invariant: only paths of
//! [`PATHS`] are ever named, and none of them changes anything in an engine.

use crate::fact::{KnownSettings, normal_name};
use crate::load::Packs;
use std::collections::BTreeMap;

/// Paths that an entry may name.
pub const PATHS: [&str; 9] = [
    "/metrics",
    "/v1/models",
    "/version",
    "/server_info",
    "/get_server_info",
    "/weight_info",
    "/model_info",
    "/get_model_info",
    "/kv_event_sources",
];

/// Values of a setting that mean that it is off.
const OFF: [&str; 6] = ["", "0", "false", "False", "none", "None"];

/// One `[[endpoint]]`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointRule {
    pub(crate) id: String,
    pub(crate) engine: String,
    /// Names of settings that hold the port, normalised, best first.
    pub(crate) port: Vec<String>,
    pub(crate) default_port: Option<u16>,
    pub(crate) serves: Vec<String>,
    /// Settings without which nothing is served, and why that is so in words.
    pub(crate) needs: BTreeMap<String, String>,
    /// Settings with which nothing that is read here is served, and why.
    pub(crate) unless: BTreeMap<String, String>,
    /// Settings with which counters go on from an earlier process.
    pub(crate) keeps_counters_when: Vec<String>,
}

/// What a worker's settings say of one of its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint<'p> {
    /// Name of the `[[endpoint]]` entry.
    pub id: &'p str,
    /// The port.
    pub port: u16,
    /// Paths that are served there.
    pub serves: &'p [String],
    /// Why it is not read although it should be there: TLS, a socket that is no address, a switch that is off.
    pub refused: Option<&'p str>,
    /// Counters may go on from an earlier process, so that their first value says nothing of this one.
    pub keeps_counters: bool,
}

impl EndpointRule {
    /// Names of settings that it reads.
    pub(crate) fn settings(&self) -> impl Iterator<Item = &String> {
        self.port.iter().chain(self.needs.keys()).chain(self.unless.keys()).chain(&self.keeps_counters_when)
    }

    fn resolve<'p>(
        &'p self,
        settings: &BTreeMap<String, String>,
        with_default: bool,
    ) -> Option<Endpoint<'p>> {
        let said = self.port.iter().find_map(|name| value(settings, name)).map(port_of);
        let port = match said {
            Some(port) => port?,
            None => self.default_port.filter(|_| with_default)?,
        };
        let is_on = |name: &String| value(settings, name).is_some_and(|value| !OFF.contains(&value));
        let missing = self.needs.iter().find(|(name, _)| !is_on(name));
        let against = self.unless.iter().find(|(name, _)| is_on(name));
        Some(Endpoint {
            id: &self.id,
            port,
            serves: &self.serves,
            refused: missing.or(against).map(|(_, reason)| reason.as_str()),
            keeps_counters: self.keeps_counters_when.iter().any(|name| value(settings, name).is_some()),
        })
    }
}

impl Packs {
    /// The endpoints of a worker that its settings (flat, dotted names) say it has. `with_defaults`: its arguments were
    /// seen, so that a port which is not among them is the default one.
    pub fn endpoints<'p>(
        &'p self,
        engine: &str,
        settings: &BTreeMap<String, String>,
        with_defaults: bool,
    ) -> Vec<Endpoint<'p>> {
        let settings = settings.iter().map(|(name, value)| (normal_name(name), value.clone())).collect();
        let own = self.endpoints.iter().filter(|rule| rule.engine == engine);
        own.filter_map(|rule| rule.resolve(&settings, with_defaults)).collect()
    }
}

impl KnownSettings {
    /// Also what endpoints read.
    pub(crate) fn with_endpoints(mut self, rules: &[EndpointRule]) -> Self {
        self.add(rules.iter().flat_map(EndpointRule::settings).cloned());
        self
    }
}

/// The value of a setting, by its whole name or the end of its path.
fn value<'s>(settings: &'s BTreeMap<String, String>, name: &str) -> Option<&'s str> {
    let whole = settings.get(name);
    let nested = || {
        let end = format!(".{name}");
        settings.iter().find(|(path, _)| path.ends_with(&end)).map(|(_, value)| value)
    };
    whole.or_else(nested).map(String::as_str)
}

/// A port alone, or that of `host:port` or of a URL. 0 is none: the system chooses one.
fn port_of(text: &str) -> Option<u16> {
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next()?;
    let port = authority.rsplit(':').next()?.trim();
    port.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_stand_behind_a_host() {
        assert_eq!(port_of("8000"), Some(8000));
        assert_eq!(port_of("0.0.0.0:8000"), Some(8000));
        assert_eq!(port_of("[::1]:8000"), Some(8000));
        assert_eq!(port_of("http://h:9/x:1"), Some(9));
        for none in ["0", "-1", "", "x", "70000"] {
            assert_eq!(port_of(none), None, "{none}");
        }
    }
}
