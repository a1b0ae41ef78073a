//! A log line that is a JSON object.

use kvprov_model::observation::Body;

/// A JSON line that matched.
#[derive(Debug, Clone)]
pub struct JsonMatch<'p> {
    /// Name of the `[[json]]` entry.
    pub id: &'p str,
    /// The engine whose pack holds it.
    pub engine: &'p str,
    /// The observation's body; `None` for kind `none`.
    pub body: Option<Body>,
    /// The id and the kept fields.
    pub says: String,
    /// Unix seconds, where the line dates itself.
    pub time: Option<f64>,
}
