//! The closed lists of words in observations.

use crate::string_enum;

string_enum! {
    /// What a worker is for.
    pub enum Role {
        /// Computes prompts for others.
        Prefill = "prefill",
        /// Decodes from KV that others computed.
        Decode = "decode",
        /// Both.
        Both = "both",
        /// Keeps artifacts.
        Store = "store",
        /// Routes requests.
        Router = "router",
    }
}

string_enum! {
    /// How something ended.
    pub enum Outcome {
        /// It began.
        Started = "started",
        /// It is waiting.
        Waiting = "waiting",
        /// It worked.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
    }
}

string_enum! {
    /// What became of a request whose KV did not arrive.
    pub enum Consequence {
        /// The engine computed the prompt itself.
        Recomputed = "recomputed",
        /// The request failed or was aborted.
        RequestFailed = "request_failed",
    }
}

string_enum! {
    /// Calls that change what a worker runs or holds.
    pub enum AdminClass {
        /// An adapter was loaded.
        LoraLoad = "lora_load",
        /// An adapter was unloaded.
        LoraUnload = "lora_unload",
        /// Weights were replaced in the running engine.
        WeightsUpdate = "weights_update",
        /// A cache was emptied.
        CacheReset = "cache_reset",
        /// The engine went to sleep.
        Sleep = "sleep",
        /// The engine woke up.
        Wake = "wake",
    }
}

string_enum! {
    /// Life of a lease on KV.
    pub enum LeaseState {
        /// The KV waits for a reader.
        Granted = "granted",
        /// All readers came.
        Released = "released",
        /// The time ran out.
        Expired = "expired",
        /// Somebody read after the end, or nobody knows the request.
        ReadAfterEnd = "read_after_end",
    }
}

string_enum! {
    /// What happened to an artifact.
    pub enum ArtifactAction {
        /// Written completely, under its final name.
        Written = "written",
        /// Read completely.
        Read = "read",
        /// Read with another size than it has.
        Partial = "partial",
        /// Looked up and not there.
        Missed = "missed",
        /// Looked up and there.
        Found = "found",
        /// Removed.
        Removed = "removed",
        /// To be removed or read, known before, and already gone.
        Gone = "gone",
        /// A write was refused.
        Refused = "refused",
        /// Removed as part of emptying the whole store.
        Cleared = "cleared",
    }
}

string_enum! {
    /// What a KV event says.
    pub enum BlockAction {
        /// Blocks were stored.
        Stored = "stored",
        /// Blocks were removed.
        Removed = "removed",
        /// Every block was removed.
        Cleared = "cleared",
    }
}

string_enum! {
    /// A place where an engine keeps KV.
    pub enum Tier {
        /// The engine's own device cache.
        Device = "device",
        /// Host memory of the engine.
        Host = "host",
        /// A tier behind a connector, local to the engine.
        Offload = "offload",
        /// A shared store.
        Storage = "storage",
        /// A peer.
        Peer = "peer",
    }
}
