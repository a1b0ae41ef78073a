//! Names of facts: settings of a worker after a pack has normalised where they came from (argument, environment,
//! configuration object, start-up line, default of the version). Detectors read facts, never raw settings.

crate::documented_constants! {
    /// What the engine does when KV does not arrive: `recompute`, `fail`, `abort`. Absent: unknown.
    LOAD_FAILURE_POLICY = "load_failure_policy";
    /// What the worker is for, where nothing declares it: `prefill`, `decode`, `store`, `router`.
    ROLE = "role";
    /// The connector or transfer backend by the engine's name for it.
    CONNECTOR = "connector";
    /// Tokens of one block or page, which is the unit of a key.
    BLOCK_SIZE = "block_size";
    /// Tensor parallel size.
    TP_SIZE = "tp_size";
    /// Pipeline parallel size.
    PP_SIZE = "pp_size";
    /// Context parallel size.
    CP_SIZE = "cp_size";
    /// Tensor parallel size that a store rounds keys up to, so that smaller sizes share them.
    TP_LCM_SIZE = "tp_lcm_size";
    /// Tensor parallel rank.
    TP_RANK = "tp_rank";
    /// Element type of the model.
    DTYPE = "dtype";
    /// Element type of the KV cache; `auto` follows the model.
    KV_CACHE_DTYPE = "kv_cache_dtype";
    /// Attention backend.
    ATTENTION_BACKEND = "attention_backend";
    /// Layout of KV in memory or in a store.
    KV_LAYOUT = "kv_layout";
    /// How a store's artifact holds the parts of several ranks: `canonical`, which all parallel sizes read alike, or `direct`,
    /// one after the other.
    STORE_LAYOUT = "store_layout";
    /// The model as given: path or hub id. Evidence, never a revision.
    MODEL_PATH = "model_path";
    /// The commit of the model's repository that was asked for. Evidence, never a digest.
    MODEL_REVISION = "model_revision";
    /// The name under which the model is served; an alias.
    MODEL_NAME = "model_name";
    /// Hash algorithm of block or chunk keys.
    HASH_ALGORITHM = "hash_algorithm";
    /// Seed of the hash chain: a value, `random` per process, or `fixed` by the release.
    HASH_SEED = "hash_seed";
    /// `true` when the engine keeps a prefix cache of its own, `false` when it is off.
    PREFIX_CACHING = "prefix_caching";
    /// What stands for an adapter in a block key: `load_number`, `name`, `name_and_path`, `none`.
    ADAPTER_KEY = "adapter_key";
    /// The shared store that the worker reads and writes, as a store id.
    STORE = "store";
    /// `host:port` at which a store that is a server is asked.
    STORE_ADDRESS = "store_address";
    /// Name of the storage backend: `file`, `mooncake`, …
    STORE_BACKEND = "store_backend";
    /// Bytes that one process allows itself in the store; `none` when nothing bounds it.
    STORE_CAP = "store_cap";
    /// `true` when each process evicts on its own, by its own count.
    PRIVATE_EVICTOR = "private_evictor";
    /// Names of the facts that are part of a key in the worker's store, comma-separated.
    KEY_FACTORS = "key_factors";
    /// A tag or prefix that the operator put into every key.
    KEY_TAG = "key_tag";
    /// What a token of a key is: single tokens or, under speculation, pairs.
    TOKEN_FORM = "token_form";
    /// `false` when the handshake does not refuse an incompatible peer.
    COMPAT_CHECK = "compat_check";
    /// `true` when KV scales are computed while serving and therefore differ between workers.
    DYNAMIC_KV_SCALES = "dynamic_kv_scales";
    /// Tokens that a healthy request computes on a decode worker of this version (0 or 1).
    LOCAL_COMPUTE_BASELINE = "local_compute_baseline";
    /// A tier behind the connector that a reset of the prefix cache does not empty.
    OFFLOAD_TIER = "offload_tier";
    /// Prompts up to this many tokens are meant to be prefilled on the decode worker.
    LOCAL_PREFILL_LIMIT = "local_prefill_limit";
    /// Where KV events are published, or read by a router.
    KV_EVENTS = "kv_events";
    /// `true` where KV events are published, `false` where that is off.
    KV_EVENTS_ENABLED = "kv_events_enabled";
    /// Where KV events that were published before are asked for.
    KV_EVENTS_REPLAY = "kv_events_replay";
    /// The topic of published KV events.
    KV_EVENTS_TOPIC = "kv_events_topic";
    /// Data parallel size: each rank publishes KV events of its own.
    DP_SIZE = "dp_size";
    /// `true` when LoRA adapters are served.
    LORA = "lora";
    /// Adapters that are there from the start, as `name=directory`, comma-separated.
    ADAPTER_DIRECTORIES = "adapter_directories";
    /// Adapters that ran at the time of the observation, comma-separated.
    ADAPTERS_RUNNING = "adapters_running";
    /// Adapters that the engine lists, as `name=path`, comma-separated, by name.
    ADAPTERS_LOADED = "adapters_loaded";
    /// The weight version that the engine claims: what somebody told it, evidence and never a factor.
    WEIGHT_VERSION = "weight_version";
    /// Lifetime of a lease in seconds.
    LEASE_SECONDS = "lease_seconds";
    /// Key of an index of KV that a router keeps over several workers.
    ROUTER_INDEX = "router_index";
    /// `host:port` of the side channel over which peers shake hands.
    SIDE_CHANNEL = "side_channel";
    /// `host:port` of the engine's own HTTP server.
    HTTP_ADDRESS = "http_address";
}
