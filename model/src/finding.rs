//! Findings: what detectors state.

use crate::clock::WallTime;
use crate::id::{FindingId, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

crate::string_enum! {
    /// The closed list of detectors.
    pub enum Detector {
        /// A prompt was computed although its KV should have come from elsewhere, and the client got an answer.
        SilentRecompute = "silent_recompute",
        /// KV did not arrive and the request failed, hung, was aborted, or its outcome is unknown.
        KvTransferFailed = "kv_transfer_failed",
        /// Blocks were read after their lease had ended or by an unknown reader.
        StaleKvRead = "stale_kv_read",
        /// KV of one compatibility group was consumed under another.
        CrossRevisionHit = "cross_revision_hit",
        /// The same content exists, or is looked up, under disjoint keys.
        KeyspaceFork = "keyspace_fork",
        /// Two actors remove each other's artifacts from one store.
        MutualEviction = "mutual_eviction",
        /// A store cannot keep what is written.
        StorePressure = "store_pressure",
        /// Actors contradict each other on a store otherwise.
        StoreConflict = "store_conflict",
        /// Handshakes queue behind an unreachable peer.
        HandshakeStall = "handshake_stall",
        /// A worker runs another revision than its alias is declared to mean.
        UnexpectedRevision = "unexpected_revision",
        /// A probe got another output over cached or transferred KV.
        OutputDivergence = "output_divergence",
        /// A safety check is off.
        GuardDisabled = "guard_disabled",
    }
}

crate::string_enum! {
    /// The closed list of causes over all detectors.
    pub enum Cause {
        /// The peers' compatibility hashes differ.
        CompatHashMismatch = "compat_hash_mismatch",
        /// The handshake failed for another reason.
        HandshakeFailed = "handshake_failed",
        /// Nothing answered the handshake.
        HandshakeTimeout = "handshake_timeout",
        /// The peer that answered is another engine than expected.
        EngineIdMismatch = "engine_id_mismatch",
        /// Block size, shape or layout do not fit.
        LayoutMismatch = "layout_mismatch",
        /// The transfer itself failed.
        TransferFailed = "transfer_failed",
        /// The peer's process ended.
        PeerDied = "peer_died",
        /// The lease ended before anybody read.
        LeaseExpired = "lease_expired",
        /// The router did not pass the transfer parameters on.
        ParamsMissing = "params_missing",
        /// The transfer parameters were unusable.
        ParamsInvalid = "params_invalid",
        /// The store cannot be reached.
        StoreUnreachable = "store_unreachable",
        /// The store promised and did not deliver.
        LoadMiss = "load_miss",
        /// The other side aborted.
        Aborted = "aborted",
        /// Other weights.
        Weights = "weights",
        /// Another adapter, or another content under its name.
        Adapter = "adapter",
        /// Another tokenizer.
        Tokenizer = "tokenizer",
        /// Another chat template.
        ChatTemplate = "chat_template",
        /// Another model configuration.
        Config = "config",
        /// Another quantisation or other scales.
        Quantisation = "quantisation",
        /// The bytes mean something else: dtype, layout.
        Representation = "representation",
        /// Another tenant.
        TenantScope = "tenant_scope",
        /// Tensor parallel size in the key.
        TpSize = "tp_size",
        /// Pipeline parallel size in the key.
        PpSize = "pp_size",
        /// Context parallel size in the key.
        CpSize = "cp_size",
        /// Served model name in the key.
        ModelName = "model_name",
        /// Model path in the key.
        ModelPath = "model_path",
        /// Block, page or chunk size in the key.
        BlockSize = "block_size",
        /// Hash algorithm of the key.
        HashAlgorithm = "hash_algorithm",
        /// Hash seed of the key.
        HashSeed = "hash_seed",
        /// The number that a LoRA adapter got when it was loaded.
        LoraId = "lora_id",
        /// An adapter's identity in the key.
        AdapterId = "adapter_id",
        /// Element type in the key.
        Dtype = "dtype",
        /// Single tokens against pairs.
        TokenForm = "token_form",
        /// An operator's tag or prefix in the key.
        ExtraTag = "extra_tag",
        /// Writes refused for want of space.
        RefusedWrites = "refused_writes",
        /// Evictions that free nothing.
        EvictionStarved = "eviction_starved",
        /// One keyspace starves another.
        KeyspaceStarved = "keyspace_starved",
        /// A clear() took foreign keys.
        Cleared = "cleared",
        /// An actor that owns nothing there removed keys.
        ForeignRemoval = "foreign_removal",
        /// One key, two sizes.
        SizeMismatch = "size_mismatch",
        /// Metadata without data.
        DanglingMetadata = "dangling_metadata",
        /// The handshake's compatibility check is off.
        CompatCheckOff = "compat_check_off",
        /// Nothing bounds a store.
        UnboundedStore = "unbounded_store",
        /// Several private evictors share one store.
        SharedEvictors = "shared_evictors",
        /// KV scales are computed while serving.
        DynamicKvScales = "dynamic_kv_scales",
        /// Not known.
        Unknown = "unknown",
    }
}

/// How sure a finding is. Ordered: risk < suspected < confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Nothing happened yet; the configuration allows it.
    Risk,
    /// Consistent with it; a leg is missing.
    Suspected,
    /// The evidence proves it.
    Confirmed,
}

/// Where a finding is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// Stated for the first time and still standing.
    Opened,
    /// Stated before; something about it is new.
    Changed,
    /// Replaced by a finding of the same subject whose episode began earlier.
    Superseded,
    /// No longer stated: its evidence was explained away or its episode is over.
    Resolved,
}

/// What proves a finding: a place in a source and its words, rebuilt from a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Evidence {
    /// The stream, as a file name in a bundle.
    pub source: String,
    /// Line or record, counted from 1; 0 where a source as a whole says it.
    pub line: u64,
    /// What is said there.
    pub says: String,
}

/// A detector's statement on one episode of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable over better evidence: hash of detector, subject and start of the episode.
    pub id: FindingId,
    /// Who states it.
    pub detector: Detector,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why, from the detector's list.
    pub cause: Cause,
    /// Where it is in its life.
    pub state: FindingState,
    /// What happened, to whom, in one or two sentences.
    pub summary: String,
    /// Every id by which an affected request is known.
    pub requests: Vec<String>,
    /// The workers concerned.
    pub workers: Vec<String>,
    /// Prompt tokens computed or decoded wrongly; 0 when the input does not determine them.
    pub tokens: u64,
    /// Distinct requests, or events where no request is concerned.
    pub count: u64,
    /// First event of the episode on its node's clock.
    #[serde(serialize_with = "optional_rfc3339", deserialize_with = "read_rfc3339")]
    pub first_seen: Option<WallTime>,
    /// Last event of the episode.
    #[serde(serialize_with = "optional_rfc3339", deserialize_with = "read_rfc3339")]
    pub last_seen: Option<WallTime>,
    /// What proves it.
    pub evidence: Vec<Evidence>,
    /// What is not known and would change the verdict; empty when nothing is.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// What to do.
    #[serde(default)]
    pub advice: String,
    /// The subject on which the episode runs: a worker, a pair, a store, a request.
    #[serde(default)]
    pub subject: String,
}

impl Finding {
    /// The order of lists: surest first, then by detector and time.
    pub fn in_lists(&self, other: &Self) -> std::cmp::Ordering {
        (other.confidence, &self.detector, self.first_seen, &self.id).cmp(&(
            self.confidence,
            &other.detector,
            other.first_seen,
            &other.id,
        ))
    }
}

// === impl FindingId ===

impl FindingId {
    /// Derives the id. `start` identifies the beginning of the episode: the id of its first observation or, where
    /// nothing dates it, a word for the configuration that makes it.
    pub fn derive(detector: &Detector, subject: &str, start: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [detector.as_str(), subject, start] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self(hex(&hash.finalize()[..8]))
    }
}

fn optional_rfc3339<S: serde::Serializer>(time: &Option<WallTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_str(&time.to_rfc3339()),
        None => serializer.serialize_none(),
    }
}

fn read_rfc3339<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<WallTime>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.as_deref().and_then(WallTime::parse_rfc3339))
}
