//! The paths that may be asked for.
//!
//! Invariant: none of them changes what an engine runs or holds, computes anything, or lists what is in a store. The
//! list is closed by type: no text from a configuration or an engine becomes a path.

use std::fmt;

/// A path that may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadPath {
    /// Metrics in Prometheus' text format; all engines, stores and routers.
    Metrics,
    /// Served models and adapters, in the form of OpenAI; vLLM, SGLang, routers.
    Models,
    /// The engine's version; vLLM, LMCache.
    Version,
    /// The resolved configuration; vLLM in developer mode, SGLang.
    ServerInfo,
    /// The same under its older name; SGLang.
    GetServerInfo,
    /// The weight version that the engine claims; vLLM in developer mode, from 0.27.
    WeightInfo,
    /// Model, served name and weight version; SGLang.
    ModelInfo,
    /// The same under its older name; SGLang.
    GetModelInfo,
    /// Where KV events are published, by rank; vLLM from 0.31.
    KvEventSources,
}

// === impl ReadPath ===

impl ReadPath {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Metrics,
        Self::Models,
        Self::Version,
        Self::ServerInfo,
        Self::GetServerInfo,
        Self::WeightInfo,
        Self::ModelInfo,
        Self::GetModelInfo,
        Self::KvEventSources,
    ];

    /// Its name in configuration and reports: the path without a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Models => "/v1/models",
            Self::Version => "/version",
            Self::ServerInfo => "/server_info",
            Self::GetServerInfo => "/get_server_info",
            Self::WeightInfo => "/weight_info",
            Self::ModelInfo => "/model_info",
            Self::GetModelInfo => "/get_model_info",
            Self::KvEventSources => "/kv_event_sources",
        }
    }

    /// The path of a name; `None` for whatever is not on the list.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|path| path.as_str() == name)
    }

    /// What the request line says.
    pub(super) fn target(self) -> &'static str {
        match self {
            // vLLM prints a Python object unless asked for JSON; others ignore the query.
            Self::ServerInfo => "/server_info?config_format=json",
            other => other.as_str(),
        }
    }

    /// The form that is asked for.
    pub(super) fn accepts(self) -> &'static str {
        match self {
            Self::Metrics => "text/plain;version=0.0.4",
            _ => "application/json",
        }
    }
}

impl fmt::Display for ReadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_may_name_what_may_be_read_and_nothing_more() {
        let known = ReadPath::ALL.map(ReadPath::as_str);
        assert_eq!(kvprov_packs::endpoint::PATHS, known);
    }

    #[test]
    fn names_lead_back_to_their_paths_and_nothing_else_is_one() {
        for path in ReadPath::ALL {
            assert_eq!(ReadPath::from_name(path.as_str()), Some(path));
        }
        for other in
            ["", "/", "/metrics/", "/sleep", "/update_weights", "/get_all_keys", "/v1/models/../sleep"]
        {
            assert_eq!(ReadPath::from_name(other), None, "{other}");
        }
    }
}
