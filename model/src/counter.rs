//! Names of counters after a version's meaning was applied: what a detector may read, whatever the engine called it.
//!
//! A pack maps an engine's metric to one of these; a value in a `counters` observation is the increase over its
//! interval (for gauges, named `*.level`, the last value). Units are in the name or the doc.

crate::documented_constants! {
    /// Prompt tokens that the worker computed itself. vLLM: set at the first output, so a failed pull is in it.
    PROMPT_LOCAL_COMPUTE = "prompt.local_compute";
    /// Prompt tokens taken from the worker's own prefix cache.
    PROMPT_LOCAL_CACHE = "prompt.local_cache";
    /// Prompt tokens whose KV really arrived over a connector.
    PROMPT_EXTERNAL = "prompt.external";
    /// All prompt tokens of finished prefills.
    PROMPT_TOTAL = "prompt.total";
    /// Requests that ended with an answer.
    REQUESTS_ANSWERED = "requests.answered";
    /// Requests that ended with an error.
    REQUESTS_FAILED = "requests.failed";
    /// Requests that ended because the client left.
    REQUESTS_ABORTED = "requests.aborted";
    /// Tokens looked up in the worker's own prefix cache.
    PREFIX_QUERIES = "prefix.queries";
    /// Tokens found in the worker's own prefix cache.
    PREFIX_HITS = "prefix.hits";
    /// Tokens asked of a connector. vLLM counts a rescheduled request twice.
    EXTERNAL_QUERIES = "external.queries";
    /// Tokens that a connector promised at admission. Includes loads that failed later: never an arrival.
    EXTERNAL_PROMISED = "external.promised";
    /// Prompt tokens read back from a device cache.
    CACHED_DEVICE = "cached.device";
    /// Prompt tokens read back from host memory.
    CACHED_HOST = "cached.host";
    /// Prompt tokens read back from a store.
    CACHED_STORAGE = "cached.storage";
    /// Transfers that succeeded, counted on the side that reads.
    TRANSFERS_SUCCEEDED = "transfers.succeeded";
    /// Transfers that failed. Since vLLM 0.31 handshakes and notifications too.
    TRANSFERS_FAILED = "transfers.failed";
    /// Bytes of successful transfers.
    TRANSFER_BYTES = "transfers.bytes";
    /// Leases that ended before all readers came; mostly unread ones.
    LEASES_EXPIRED = "leases.expired";
    /// Notifications that came after the lease had ended.
    READS_AFTER_EXPIRY = "leases.reads_after_expiry";
    /// Requests that gave their blocks up and were computed again.
    PREEMPTIONS = "preemptions";
    /// Weight updates in a running engine.
    WEIGHT_UPDATES = "weights.updates";
    /// Requests for which a router chose decode alone.
    ROUTED_DECODE_ONLY = "router.decode_only";
    /// Requests for which a router chose prefill and decode.
    ROUTED_PREFILL_DECODE = "router.prefill_decode";
    /// Requests that a router sent to decode without what prefill should have given back: the prompt is computed there.
    ROUTED_WITHOUT_PARAMS = "router.params_missing";
    /// Tokens written to a store.
    STORE_WRITTEN_TOKENS = "store.written_tokens";
    /// Eviction passes that a store tried.
    STORE_EVICTION_ATTEMPTS = "store.eviction.attempts";
    /// Eviction passes that freed something.
    STORE_EVICTION_SUCCESSES = "store.eviction.successes";
    /// Keys that a store evicted.
    STORE_EVICTED_KEYS = "store.eviction.keys";
    /// Bytes that a store evicted.
    STORE_EVICTED_BYTES = "store.eviction.bytes";
    /// Writes that a store refused for want of space.
    STORE_REFUSED_WRITES = "store.refused_writes";
    /// Writes to a store that failed, for want of space or otherwise.
    STORE_FAILED_WRITES = "store.failed_writes";
    /// Reads that a store could not serve although it lists the key.
    STORE_FAILED_READS = "store.failed_reads";
    /// Bytes in use now.
    STORE_USED_LEVEL = "store.used_bytes.level";
    /// Bytes that fit.
    STORE_CAPACITY_LEVEL = "store.capacity_bytes.level";
    /// Keys that are there now.
    STORE_KEYS_LEVEL = "store.keys.level";
    /// Clients connected now.
    STORE_CLIENTS_LEVEL = "store.clients.level";
}
