//! The closed table of kinds.

use super::words::{AdminClass, ArtifactAction, BlockAction, Consequence, LeaseState, Outcome, Role, Tier};
use crate::value::{Field, Value};
use std::collections::BTreeMap;

/// One attribute of a kind, for documentation and for the validation of packs.
#[derive(Debug, Clone, Copy)]
pub struct FieldDoc {
    /// Name without the `kvprov.` prefix.
    pub name: &'static str,
    /// Type, as [`Field::TYPE`].
    pub field_type: &'static str,
    /// The closed list of words, where the type is one.
    pub words: &'static [&'static str],
    /// What it says.
    pub doc: &'static [&'static str],
}

/// One kind, for documentation and for the validation of packs.
#[derive(Debug, Clone, Copy)]
pub struct KindDoc {
    /// Name without the `kvprov.` prefix.
    pub name: &'static str,
    /// What it says.
    pub doc: &'static [&'static str],
    /// Its attributes.
    pub fields: &'static [FieldDoc],
}

macro_rules! kinds {
    ($(
        $(#[doc = $doc:literal])+
        $variant:ident = $word:literal {
            $($(#[doc = $fdoc:literal])+ $field:ident: $type:ty,)+
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, Default, PartialEq)]
            pub struct $variant {
                $($(#[doc = $fdoc])+ pub $field: $type,)+
            }
        )+

        /// What one kind of observation says.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Body {
            $($(#[doc = $doc])+ $variant($variant),)+
            /// A kind of a newer version; its attributes are in `extra`.
            Unknown {
                /// Its name without the `kvprov.` prefix.
                kind: String,
            },
        }

        impl Body {
            /// The table of kinds.
            pub const KINDS: &'static [KindDoc] = &[$(KindDoc {
                name: $word,
                doc: &[$($doc),+],
                fields: &[$(FieldDoc {
                    name: stringify!($field),
                    field_type: <$type as Field>::TYPE,
                    words: <$type as Field>::WORDS,
                    doc: &[$($fdoc),+],
                }),+],
            }),+];

            /// The kind's name without the `kvprov.` prefix.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $word,)+
                    Self::Unknown { kind } => kind,
                }
            }

            /// Hands every present attribute to `sink`, by name without prefix.
            pub fn for_each_attribute(&self, mut sink: impl FnMut(&'static str, Value)) {
                match self {
                    $(Self::$variant(body) => {
                        $(if let Some(value) = body.$field.put() { sink(stringify!($field), value); })+
                    })+
                    Self::Unknown { .. } => {}
                }
            }

            /// One attribute by name without prefix, if it is present.
            pub fn attribute(&self, name: &str) -> Option<Value> {
                match self {
                    $(Self::$variant(body) => match name {
                        $(stringify!($field) => body.$field.put(),)+
                        _ => None,
                    })+
                    Self::Unknown { .. } => None,
                }
            }

            /// An empty body of a kind.
            pub fn empty(kind: &str) -> Self {
                match kind {
                    $($word => Self::$variant($variant::default()),)+
                    other => Self::Unknown { kind: other.to_owned() },
                }
            }

            /// Sets one attribute by name without prefix; gives the value back when this kind has no such attribute
            /// or its type is another.
            pub fn set(&mut self, name: &str, value: Value) -> Result<(), Value> {
                match self {
                    $(Self::$variant(body) => match name {
                        $(stringify!($field) => { body.$field = Field::take(value)?; Ok(()) })+
                        _ => Err(value),
                    })+
                    Self::Unknown { .. } => Err(value),
                }
            }
        }
    };
}

kinds! {
    /// Engine, version, role, settings, processes of a worker. Several of them merge field by field.
    Worker = "worker" {
        /// Engine: `vllm`, `sglang`, `lmcache`, `mooncake`, `dynamo`, `llm-d`, `nixl`.
        engine: Option<String>,
        /// Its version as printed.
        engine_version: Option<String>,
        /// What it is for.
        role: Option<Role>,
        /// Engine ids by which peers know it.
        engine_ids: Vec<String>,
        /// Settings as arguments and environment show them, flattened with dots.
        settings: BTreeMap<String, String>,
        /// Normalised settings and defaults of the version; names in `model::fact`.
        facts: BTreeMap<String, String>,
        /// Where facts come from, where a source says: `setting tp_size of the command line`, `default of 0.32`.
        fact_origins: BTreeMap<String, String>,
        /// Process ids of its tree.
        pids: Vec<String>,
        /// Kubernetes pod, by its name, or by its uid where only that is known.
        pod: Option<String>,
        /// Namespace of the pod.
        namespace: Option<String>,
        /// Name of the container in the pod, or its only name.
        container: Option<String>,
        /// Image of the container, as it was asked for: `registry/name:tag`.
        image: Option<String>,
        /// Digest under which the registry has that image: `sha256:…`.
        image_digest: Option<String>,
        /// Sources that watch it: `log`, `metrics`, `kernel`, `kv-events`.
        watched_by: Vec<String>,
    }
    /// The end of a worker.
    WorkerGone = "worker_gone" {
        /// Signal that ended it.
        exit_signal: Option<i64>,
        /// Exit status.
        exit_status: Option<i64>,
    }
    /// One factor of a worker or of an adapter on it, from its time on.
    Factor = "factor" {
        /// Name of the factor.
        factor: Option<String>,
        /// The adapter that has it, by name or by the directory of its files; absent: the worker.
        adapter: Option<String>,
        /// How the value was made.
        algorithm: Option<String>,
        /// The value.
        value: Option<String>,
        /// How much is known.
        state: Option<crate::factor::FactorState>,
        /// File or call that shows it.
        origin: Option<String>,
        /// Names and sizes of the files as a short hash, where the same content may stand in other files.
        layout: Option<String>,
        /// What the content means whatever files hold it: `tensors-v1:…`, `gguf-v1:…`, `config-v1:…`.
        meaning: Option<String>,
        /// Why it is not known, or not known in full, in words.
        reason: Option<String>,
    }
    /// What an operator declares that a name means. The statements of one list hold together; a newer list of the same stream
    /// takes the place of the one before. A list without statements is one observation that states nothing.
    Expected = "expected" {
        /// The name that requests ask for: a served model or an adapter; absent: what the worker spoken of serves.
        alias: Option<String>,
        /// Revisions that it may mean, as ids.
        revisions: Vec<String>,
        /// Factors that it has to have, by name, as `algorithm:value`.
        factors: BTreeMap<String, String>,
        /// Only on workers of this role.
        role: Option<Role>,
        /// Only in this pool.
        pool: Option<String>,
        /// Only in this namespace.
        namespace: Option<String>,
        /// From when the statement holds, in nanoseconds since the epoch; absent: as long as its list.
        from_wall_ns: Option<i64>,
        /// From when the list holds; absent: from the beginning.
        list_wall_ns: Option<i64>,
    }
    /// One leg of a request over HTTP: between client and router, router and prefill, router and decode.
    RequestLeg = "request_leg" {
        /// The leg by the role of the side that answers: prefill, decode, both, router.
        leg: Option<Role>,
        /// The client's id.
        request_id: Option<String>,
        /// The id in the reply.
        reply_id: Option<String>,
        /// The model asked for.
        model: Option<String>,
        /// The adapter asked for.
        adapter: Option<String>,
        /// The engine says that the request uses none.
        without_adapter: Option<bool>,
        /// `host:port` asked.
        endpoint: Option<String>,
        /// W3C trace context.
        traceparent: Option<String>,
        /// Whether the request to this side carried KV parameters.
        kv_params_sent: Option<bool>,
        /// Whether the reply of this side carried KV parameters.
        kv_params_received: Option<bool>,
        /// Engine id in the KV parameters.
        remote_engine_id: Option<String>,
        /// Request id on the prefill side in the KV parameters.
        remote_request_id: Option<String>,
        /// `host:port` in the KV parameters.
        remote_peer: Option<String>,
        /// Join key of connectors that have one.
        transfer_id: Option<String>,
        /// Blocks in the KV parameters.
        remote_blocks: Option<i64>,
        /// Tokens in the KV parameters.
        remote_tokens: Option<i64>,
        /// Nanoseconds from start to end.
        duration_ns: Option<i64>,
        /// HTTP status.
        status: Option<i64>,
        /// Prompt tokens in the usage.
        prompt_tokens: Option<i64>,
        /// Cached prompt tokens in the usage.
        cached_tokens: Option<i64>,
        /// Completion tokens in the usage.
        completion_tokens: Option<i64>,
        /// Finish reason.
        finish_reason: Option<String>,
        /// Weight version that the reply claims.
        weight_version: Option<String>,
        /// The client left before the end.
        client_gone: Option<bool>,
    }
    /// A call or line that changes what a worker runs or holds.
    AdminCall = "admin_call" {
        /// What it does.
        class: Option<AdminClass>,
        /// Names concerned: adapters.
        names: Vec<String>,
        /// Ids that the engine gave them, where its keys hold those.
        ids: Vec<String>,
        /// Paths concerned.
        paths: Vec<String>,
        /// Tiers that it empties.
        tiers: Vec<String>,
        /// Whether it worked.
        outcome: Option<Outcome>,
        /// The engine says that blocks of the old content stay valid.
        keeps_old_blocks: Option<bool>,
        /// How often it happened in the interval, where only a counter shows it.
        times: Option<i64>,
        /// Process or rank that speaks for itself alone: each rank empties a cache of its own.
        process: Option<String>,
    }
    /// A handshake of two peers.
    Handshake = "handshake" {
        /// `host:port` of the peer.
        peer: Option<String>,
        /// Own engine id.
        local_engine_id: Option<String>,
        /// Engine id of the peer, as expected.
        remote_engine_id: Option<String>,
        /// Engine id that answered.
        answered_engine_id: Option<String>,
        /// Own compatibility hash.
        local_hash: Option<String>,
        /// The peer's compatibility hash.
        remote_hash: Option<String>,
        /// How it ended.
        outcome: Option<Outcome>,
        /// Why it failed.
        cause: Option<crate::finding::Cause>,
        /// Requests that waited for it.
        request_ids: Vec<String>,
        /// Nanoseconds.
        duration_ns: Option<i64>,
    }
    /// A transfer of KV between two workers.
    Transfer = "transfer" {
        /// Id on the side that speaks.
        request_id: Option<String>,
        /// Further ids in the same statement.
        request_ids: Vec<String>,
        /// Id on the other side.
        remote_request_id: Option<String>,
        /// Join key of connectors that have one: transfer id, bootstrap room.
        transfer_id: Option<String>,
        /// Own engine id.
        local_engine_id: Option<String>,
        /// Engine id of the peer.
        remote_engine_id: Option<String>,
        /// Own `host:port` of the connection.
        local: Option<String>,
        /// `host:port` of the peer.
        peer: Option<String>,
        /// `pull`, `push`, `send`, `receive`.
        direction: Option<String>,
        /// Bytes that should move.
        bytes_expected: Option<i64>,
        /// Bytes that moved.
        bytes_seen: Option<i64>,
        /// Whether the path shows its bytes to the kernel.
        visible: Option<bool>,
        /// How it ended.
        outcome: Option<Outcome>,
        /// Why it failed.
        cause: Option<crate::finding::Cause>,
        /// The engine's own word for the failure.
        failure: Option<String>,
        /// What the engine says becomes of the request.
        consequence: Option<Consequence>,
        /// Tokens concerned.
        tokens: Option<i64>,
        /// Blocks concerned.
        blocks: Option<i64>,
        /// Nanoseconds.
        duration_ns: Option<i64>,
        /// Equal statements folded into this one.
        times: Option<i64>,
    }
    /// A lease on KV that waits for its reader.
    Lease = "lease" {
        /// Id on the side that holds the KV.
        request_id: Option<String>,
        /// Where it is in its life.
        state: Option<LeaseState>,
        /// Readers that came.
        readers: Option<i64>,
        /// When the reader read on its own node's clock, where known, in nanoseconds since the epoch.
        read_wall_ns: Option<i64>,
    }
    /// The engine's own words on KV that could not be loaded.
    KvLoad = "kv_load" {
        /// What became of the requests.
        consequence: Option<Consequence>,
        /// Their ids, where printed.
        request_ids: Vec<String>,
        /// How many requests.
        requests: Option<i64>,
        /// Tokens concerned.
        tokens: Option<i64>,
        /// Blocks or keys concerned.
        blocks: Option<i64>,
        /// Blocks or keys asked for.
        blocks_asked: Option<i64>,
        /// Where the KV should have come from.
        tier: Option<Tier>,
        /// Why.
        cause: Option<crate::finding::Cause>,
        /// The store or peer.
        peer: Option<String>,
    }
    /// What a request or an interval took from caches.
    CacheUse = "cache_use" {
        /// The request; absent for an interval.
        request_id: Option<String>,
        /// The adapter of the request.
        adapter: Option<String>,
        /// Where from.
        tier: Option<Tier>,
        /// Tokens asked for.
        asked: Option<i64>,
        /// Tokens found at lookup.
        hit: Option<i64>,
        /// Tokens to be loaded after lookup.
        needed: Option<i64>,
        /// Tokens that came.
        retrieved: Option<i64>,
        /// Tokens computed.
        computed: Option<i64>,
        /// Tokens written to the store.
        stored: Option<i64>,
        /// Keys found, where the source counts keys.
        keys: Option<i64>,
    }
    /// Increases of counters over an interval, after the version's meaning was applied.
    Counters = "counters" {
        /// Begin of the interval on the node's clock; absent for totals alone, and where a line counts since the last one.
        since_wall_ns: Option<i64>,
        /// Increases by name; names in `model::counter`.
        values: BTreeMap<String, f64>,
        /// Totals at the end of the interval by name.
        totals: BTreeMap<String, f64>,
        /// Labels that are the same for all: model name, engine.
        labels: BTreeMap<String, String>,
        /// Counters that began anew in the interval.
        resets: Option<i64>,
    }
    /// Something happened to a stored artifact.
    Artifact = "artifact" {
        /// The store.
        store: Option<String>,
        /// The whole key or file name.
        key: Option<String>,
        /// The grammar that split the key.
        grammar: Option<String>,
        /// The part of the key that stands for token content.
        content: Option<String>,
        /// The other parts of the key by fact name.
        fields: BTreeMap<String, String>,
        /// What happened.
        action: Option<ArtifactAction>,
        /// Bytes that moved.
        bytes: Option<i64>,
        /// Bytes that were asked for.
        bytes_wanted: Option<i64>,
        /// Process that did it.
        pid: Option<i64>,
    }
    /// A KV event of an engine.
    Block = "block" {
        /// What happened.
        action: Option<BlockAction>,
        /// Block hashes as the engine publishes them.
        hashes: Vec<String>,
        /// Content hashes at the ends of these blocks, where comparable; empty text where not.
        content: Vec<String>,
        /// Id of the key of the content hashes.
        content_key: Option<String>,
        /// Hash of the block before the first.
        parent: Option<String>,
        /// Tokens of one block.
        block_size: Option<i64>,
        /// Tokens in all.
        tokens: Option<i64>,
        /// `GPU`, `CPU`, `STORAGE`, …
        medium: Option<String>,
        /// Adapter by name.
        adapter: Option<String>,
        /// Whether the hash holds more than tokens: a salt, an image, an adapter.
        extra_keys: Option<bool>,
        /// Sequence number of the batch.
        sequence: Option<i64>,
    }
    /// A store as a whole.
    Store = "store" {
        /// The store.
        store: Option<String>,
        /// Who makes it.
        engine: Option<String>,
        /// What bounds it, in bytes.
        capacity_bytes: Option<i64>,
        /// Bytes in use.
        used_bytes: Option<i64>,
        /// What happened: `refused`, `unwritten` (nobody says why), `evicted`, `pressure`, `waiting` (for room).
        event: Option<String>,
        /// Key concerned.
        key: Option<String>,
        /// Writes or keys concerned.
        keys: Option<i64>,
        /// Configurations that disagree, by fact name, where the source states it: `a` and `b` values joined by ` != `.
        disagreement: BTreeMap<String, String>,
        /// Equal statements folded into this one.
        times: Option<i64>,
    }
    /// How a worker turned tokens into a key, where a source prints it.
    KeyDerivation = "key_derivation" {
        /// Hash before.
        parent: Option<String>,
        /// Salted digest of the printed tokens; equal means equal tokens on one fleet key.
        tokens_digest: Option<String>,
        /// Number of tokens that were hashed.
        tokens: Option<i64>,
        /// `single` or `pairs`, where visible.
        token_form: Option<String>,
        /// Digest of the first printed token alone, to compare across token forms.
        first_token_digest: Option<String>,
        /// The resulting hash.
        result: Option<String>,
        /// Whether it was to look up (`lookup`) or to store (`store`).
        purpose: Option<String>,
    }
    /// A warning or worse of a KV module that no template knows.
    Trouble = "trouble" {
        /// `warning`, `error`, `critical`.
        level: Option<String>,
        /// Module or file.
        module: Option<String>,
        /// Hash of the message with its digits dropped.
        message_hash: Option<String>,
        /// Equal ones folded into this one.
        times: Option<i64>,
    }
    /// What a source lost and why.
    Loss = "loss" {
        /// Where: `read`, `decode`, `match`, `ship`.
        stage: Option<String>,
        /// Why.
        reason: Option<String>,
        /// How many records.
        records: Option<i64>,
        /// How many bytes.
        bytes: Option<i64>,
    }
    /// Clocks of a node.
    Clock = "clock" {
        /// Nanoseconds by which the node's wall clock is ahead of the collector's.
        offset_ns: Option<i64>,
        /// Half the width of the estimate.
        uncertainty_ns: Option<i64>,
    }
    /// A sign of life: the source has delivered everything up to its time.
    Alive = "alive" {
        /// Sources that are complete up to here.
        streams: Vec<String>,
    }
}
