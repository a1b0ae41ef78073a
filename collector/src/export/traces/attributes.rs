//! The closed table of what stands in a span, and the one place where names are written.
//!
//! Names that begin with `gen_ai.`, `http.`, `host.` and `service.` are those of OpenTelemetry's semantic conventions, except
//! `gen_ai.request.id`, which engines of this field use. `docs/traces.md` tells the same to people; a test holds both
//! together.

/// One attribute.
#[derive(Debug, Clone, Copy)]
pub struct Attribute {
    /// Its name.
    pub name: &'static str,
    /// Its type, as OpenTelemetry calls it.
    pub value: &'static str,
    /// Where it stands: `resource`, `request`, `point` or `finding`.
    pub on: &'static str,
    /// What it says, and who says it.
    pub meaning: &'static str,
}

macro_rules! attributes {
    ($($const:ident = $name:literal, $value:literal, $on:literal, $meaning:literal;)+) => {
        $(#[doc = $meaning] pub(super) const $const: &str = $name;)+

        /// All of them.
        pub const ALL: &[Attribute] =
            &[$(Attribute { name: $name, value: $value, on: $on, meaning: $meaning }),+];
    };
}

attributes! {
    SERVICE_NAME = "service.name", "string", "resource", "Always `kvprov`.";
    SERVICE_VERSION = "service.version", "string", "resource", "The collector's version.";
    REQUEST_ID = "gen_ai.request.id", "string", "request", "The client's id of the request: its legs in logs and spans.";
    REQUEST_IDS = "kvprov.request.ids", "string[]", "request", "Every id by which the request is known, as printed; at most 32.";
    REQUEST_MODEL = "gen_ai.request.model", "string", "request", "The model asked for, as the router tells it.";
    INPUT_TOKENS = "gen_ai.usage.input_tokens", "int", "request", "Tokens of the prompt, from the usage that the router or the engine's span tells.";
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens", "int", "request", "Tokens of the answer, from the same.";
    CACHED_TOKENS = "kvprov.cached_tokens", "int", "request", "Tokens of the prompt that the decode side took from a cache, from the same.";
    HTTP_STATUS = "http.response.status_code", "int", "request", "Status of the answer, as the router tells it.";
    LINEAGE_STATUS = "kvprov.lineage.status", "string", "request", "`consistent`, `divergent` or `unverified` (a point is unknown).";
    TRACED_BECAUSE = "kvprov.traced_because", "string", "request", "`divergent`, `failed`, `recomputed`, `finding` or `sample`.";
    FINDINGS = "kvprov.findings", "string[]", "request", "Ids of the findings that name the request; at most 16.";
    POINT = "kvprov.point", "string", "point", "`prefill`, `artifact` or `decode`.";
    WORKER = "kvprov.worker", "string", "point", "The worker, where the point is one.";
    HOST_NAME = "host.name", "string", "point", "The node that dates the point.";
    REVISION = "kvprov.revision", "string", "point", "The revision id, where every factor is full: from digests of the files that the worker opened.";
    WEIGHTS = "kvprov.weights", "string", "point", "Digest of the weights, with its algorithm; from the same.";
    MODEL = "kvprov.model", "string", "point", "The model as it is named there: evidence, no proof.";
    OUTCOME = "kvprov.kv.outcome", "string", "point", "What arrived: `transfer`, `recomputed`, `failed`, `store` or `local`.";
    UNKNOWN = "kvprov.unknown", "string", "point", "What is not known of the point, and why.";
    TIME_KNOWN = "kvprov.time_known", "boolean", "point", "False: no source dates the point; the span has the times of the request.";
    CLOCK_AHEAD = "kvprov.clock_ahead_ns", "int", "point", "The node's clock was this far ahead of the collector's, and the times of the span are corrected by it.";
    FINDING_ID = "kvprov.finding.id", "string", "finding", "Id of the finding, for `kvprov explain`.";
    FINDING_DETECTOR = "kvprov.finding.detector", "string", "finding", "Its detector.";
    FINDING_CAUSE = "kvprov.finding.cause", "string", "finding", "Its cause.";
    FINDING_CONFIDENCE = "kvprov.finding.confidence", "string", "finding", "`confirmed`, `suspected` or `risk`.";
    FINDING_SUMMARY = "kvprov.finding.summary", "string", "finding", "What happened, in a sentence or two.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_every_attribute_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/traces.md");
        let text = std::fs::read_to_string(path).unwrap();
        let row = |a: &Attribute| format!("| `{}` | {} | {} | {} |", a.name, a.value, a.on, a.meaning);
        let rows: Vec<String> = ALL.iter().map(row).collect();
        let written: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "## Attributes")
            .filter(|line| line.starts_with("| `"))
            .collect();
        assert_eq!(written, rows, "expected in docs/traces.md:\n{}", rows.join("\n"));
    }
}
