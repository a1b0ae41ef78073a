//! Lineage: the revision of a request at four points.

use serde::{Deserialize, Serialize};

/// Whether the four points agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineageStatus {
    /// Every point is known and all agree.
    Consistent,
    /// Two points are known to differ.
    Divergent,
    /// A point is unknown.
    Unverified,
}

/// One of the four points.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The worker, where the point is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The model as named at this point: an alias, evidence only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The revision id, where every factor is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Digest of the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// What arrived: `transfer`, `recomputed`, `failed`, `store`, `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why the point is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// The four points.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Points {
    /// What the client asked for.
    pub request: Point,
    /// The worker that computed the prompt.
    pub prefill: Point,
    /// The KV that travelled or was stored.
    pub artifact: Point,
    /// The worker that decoded.
    pub decode: Point,
}

/// The four-point record of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The client's id of the request.
    pub request: String,
    /// Whether the points agree.
    pub status: LineageStatus,
    /// The points.
    pub points: Points,
}
