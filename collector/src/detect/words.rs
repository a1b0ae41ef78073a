//! Words for people: why, and what to do. Nothing here decides.

use kvprov_model::finding::{Cause, Detector};

/// Why it happened, as the end of a sentence.
pub fn because(cause: &Cause) -> &'static str {
    match cause {
        Cause::CompatHashMismatch => "the compatibility hashes of the two sides differ",
        Cause::HandshakeFailed => "the handshake with the peer failed",
        Cause::HandshakeTimeout => "nothing answered the handshake",
        Cause::EngineIdMismatch => "another engine answered than the one expected",
        Cause::LayoutMismatch => "block size, shape or layout of the two sides do not fit",
        Cause::TransferFailed => "the transfer failed",
        Cause::PeerDied => "the peer's process was gone",
        Cause::LeaseExpired => "the lease on the KV ended before anybody read it",
        Cause::ParamsMissing => "the request reached the decode side without transfer parameters",
        Cause::ParamsInvalid => "the transfer parameters were unusable",
        Cause::StoreUnreachable => "the store cannot be reached",
        Cause::LoadMiss => "the store promised KV that it did not deliver",
        Cause::Aborted => "the other side aborted",
        Cause::Weights => "the weights differ",
        Cause::Adapter => "the adapters differ",
        Cause::Tokenizer => "the tokenizers differ",
        Cause::ChatTemplate => "the chat templates differ",
        Cause::Config => "the model configurations differ",
        Cause::Quantisation => "quantisation or scales differ",
        Cause::Representation => "the bytes are read as another type or layout",
        Cause::TenantScope => "the tenants differ",
        Cause::Unknown => "no source says why",
        _ => "the configurations differ",
    }
}

/// The name of what differs, for sentences about keys.
pub fn factor_name(cause: &Cause) -> &'static str {
    match cause {
        Cause::TpSize => "the tensor parallel size",
        Cause::PpSize => "the pipeline parallel size",
        Cause::CpSize => "the context parallel size",
        Cause::ModelName => "the served model name",
        Cause::ModelPath => "the model path",
        Cause::BlockSize => "the block size",
        Cause::HashAlgorithm => "the hash algorithm",
        Cause::HashSeed => "the hash seed",
        Cause::LoraId => "the load number of the adapter",
        Cause::AdapterId => "the adapter's identity",
        Cause::Dtype => "the element type",
        Cause::TokenForm => "the form of tokens (single or pairs)",
        Cause::ExtraTag => "an operator's tag",
        _ => "something that no source names",
    }
}

/// What to do.
pub fn advice(detector: &Detector, cause: &Cause) -> &'static str {
    match (detector, cause) {
        (_, Cause::CompatHashMismatch) => {
            "Compare version, model path, dtype, KV cache dtype and attention backend of both workers; \
             roll both out together."
        }
        (_, Cause::HandshakeTimeout) => {
            "Check that the prefill worker lives and that its side channel host and port are reachable from the decode node."
        }
        (_, Cause::EngineIdMismatch) => {
            "The router holds a stale engine id: the prefill worker restarted or the address was reused. Refresh the router's view."
        }
        (_, Cause::LayoutMismatch) => {
            "Give both sides the same block size, KV layout and a supported tensor parallel pair."
        }
        (_, Cause::PeerDied) => {
            "Find out why the prefill worker ended; drain it from the router before it stops."
        }
        (_, Cause::LeaseExpired) => {
            "See whether the decode side is slower than the lease; lengthen the lease or find the requests that never came."
        }
        (_, Cause::ParamsMissing) => {
            "Check that the router passes kv_transfer_params from the prefill reply to the decode request, or that decode-only routing is meant."
        }
        (_, Cause::ParamsInvalid) => {
            "Check the router's version against the engine's: a field of kv_transfer_params is missing or renamed."
        }
        (_, Cause::StoreUnreachable) => {
            "Check address, network and health of the store; until then every prompt is computed anew."
        }
        (_, Cause::LoadMiss) => {
            "See who removes keys between lookup and load: another evictor, a clear, a store that lost a segment."
        }
        (_, Cause::HandshakeFailed) => {
            "Read the traceback at the evidence line; compare versions and settings of both workers and the router's idea of the peer."
        }
        (_, Cause::TransferFailed) => {
            "Look at the transfer library's own lines (NIXL, UCX, Mooncake, RDMA counters) on both nodes at that time."
        }
        (_, Cause::Aborted) => {
            "See why the other side aborted: its log at that time, memory, timeouts, the client."
        }
        (Detector::KvTransferFailed | Detector::SilentRecompute, Cause::Unknown) => {
            "Follow the request id over the logs of router, prefill and decode; raise the log level of the KV modules if they are silent."
        }
        (Detector::StaleKvRead, _) => {
            "Treat the answers as wrong. Lengthen the lease or bound the time between prefill and pull; upgrade to a release with heartbeats."
        }
        (Detector::CrossRevisionHit, Cause::Adapter) => {
            "Treat the answers as wrong. Load changed adapters under a new name or path, and empty the caches after a reload."
        }
        (Detector::CrossRevisionHit, _) => {
            "Treat the answers as wrong. Put the revision into the key (cache salt, prefix, tag) or path, empty every tier on a change, \
             and keep pools of two revisions apart in the router."
        }
        (Detector::KeyspaceFork, Cause::HashSeed) => {
            "Set the same PYTHONHASHSEED on every engine that shares the store or the index."
        }
        (Detector::KeyspaceFork, _) => {
            "Bring the factor into line on all engines that are meant to share, or give them stores of their own."
        }
        (Detector::MutualEviction, _) => {
            "Give each engine a directory of its own, or one evictor for the whole store; private caps on a shared directory fight."
        }
        (Detector::StorePressure, _) => {
            "Give the store more room or the writers less; look at eviction watermark and lease time."
        }
        (Detector::StoreConflict, _) => {
            "Keep deployments in stores (or prefixes) of their own; restrict who may clear and remove."
        }
        (Detector::HandshakeStall, _) => {
            "Remove dead peers from the router first: one thread waits five seconds for each."
        }
        (Detector::UnexpectedRevision, Cause::Unknown) => {
            "Compare /api/v1/workers of the worker with what was meant to run; declare its revision where the rollout is meant."
        }
        (Detector::UnexpectedRevision, _) => {
            "Take the worker out of rotation and give it what is declared; where the rollout is meant, declare both revisions."
        }
        (Detector::GuardDisabled, Cause::CompatCheckOff) => {
            "Take the setting away, so that a peer of another version, type or backend is refused; two versions at once need pairs of \
             their own, not a check that is off."
        }
        (Detector::GuardDisabled, Cause::UnboundedStore) => {
            "Set a cap in bytes, below what the file system has free; a full one fails every writer at once."
        }
        (Detector::GuardDisabled, Cause::SharedEvictors) => {
            "Give each engine a directory of its own, or turn their eviction off and let one process evict for all."
        }
        (Detector::GuardDisabled, Cause::DynamicKvScales) => {
            "Take the setting away and use scales from a calibrated checkpoint; until then let this engine share KV with nobody."
        }
        (Detector::GuardDisabled, _) => "Turn the check on again, or write down why it is off.",
        _ => "Look at the evidence lines on the worker named.",
    }
}
