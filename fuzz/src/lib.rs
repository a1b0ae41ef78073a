//! What the fuzz targets share: a source to read from, and checks on what comes out.

use kvprov_agent::source::SourceContext;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::Observation;
use std::collections::BTreeSet;

/// A source of one worker.
pub fn source(stream: &str) -> SourceContext {
    SourceContext {
        node: NodeId::from("node-a"),
        worker: Some(WorkerId::from("w0")),
        stream: stream.to_owned(),
        instance: stream.to_owned(),
        generation: 0,
    }
}

/// Checks observations as they come.
#[derive(Default)]
pub struct Checks {
    seen: BTreeSet<String>,
}

impl Checks {
    /// No two places of one source have one id, and every observation survives the wire.
    pub fn take(&mut self, observation: &Observation) {
        assert!(self.seen.insert(format!("{:?}", observation.envelope.id)), "one id twice: {observation:?}");
        let bytes = kvprov_model::observation::otlp::encode(std::slice::from_ref(observation));
        let decoded = kvprov_model::observation::otlp::decode(&bytes);
        assert!(decoded.is_ok(), "does not survive the wire: {observation:?}");
    }
}
