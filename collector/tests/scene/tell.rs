//! What is told in scenes: bodies of observations, one function a statement.

use super::clock;
use kvprov_model::finding::Cause;
use kvprov_model::observation::{
    AdminCall, AdminClass, Alive, Artifact, ArtifactAction, Block, BlockAction, Body, CacheUse, Consequence,
    Counters, Handshake, KeyDerivation, KvLoad, Lease, LeaseState, Loss, Outcome, RequestLeg, Role, Store,
    Tier, Transfer, Worker,
};

/// A source of the worker lost records.
pub fn lost(records: i64) -> Body {
    Body::Loss(Loss {
        stage: Some("read".to_owned()),
        reason: Some("rotated".to_owned()),
        records: Some(records),
        bytes: None,
    })
}

/// The node has delivered everything up to now.
pub fn alive() -> Body {
    Body::Alive(Alive { streams: Vec::new() })
}

/// The worker is in a container of a pod in this namespace.
pub fn in_namespace(namespace: &str) -> Body {
    Body::Worker(Worker { namespace: Some(namespace.to_owned()), ..Worker::default() })
}

/// A handshake for a request failed.
pub fn handshake_failed(request: &str, cause: Cause) -> Body {
    handshake_with("", request, cause)
}

/// A handshake with an engine for a request failed.
pub fn handshake_with(engine: &str, request: &str, cause: Cause) -> Body {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Body::Handshake(Handshake {
        remote_engine_id: some(engine),
        outcome: Some(Outcome::Failed),
        cause: Some(cause),
        request_ids: some(request).into_iter().collect(),
        ..Handshake::default()
    })
}

/// A transfer for a request, with the cause where it failed. An empty request names none.
pub fn transfer(request: &str, outcome: Outcome, cause: Option<Cause>) -> Transfer {
    let request_id = (!request.is_empty()).then(|| request.to_owned());
    Transfer { request_id, outcome: Some(outcome), cause, ..Transfer::default() }
}

/// A transfer for a request failed.
pub fn transfer_failed(request: &str, cause: Cause) -> Body {
    Body::Transfer(transfer(request, Outcome::Failed, Some(cause)))
}

/// A transfer failed, and the engine says that it aborts the request.
pub fn aborted(request: &str, cause: Cause) -> Body {
    Body::Transfer(Transfer {
        consequence: Some(Consequence::RequestFailed),
        ..transfer(request, Outcome::Failed, Some(cause))
    })
}

/// A transfer for a request succeeded.
pub fn transferred(request: &str) -> Body {
    Body::Transfer(transfer(request, Outcome::Succeeded, None))
}

/// A transfer for a request from an engine succeeded.
pub fn transferred_from(engine: &str, request: &str) -> Body {
    Body::Transfer(Transfer {
        remote_engine_id: Some(engine.to_owned()),
        ..transfer(request, Outcome::Succeeded, None)
    })
}

/// A request still waits for its KV.
pub fn waiting(request: &str) -> Body {
    Body::Transfer(transfer(request, Outcome::Waiting, None))
}

/// The scheduler rescheduled requests whose load had failed.
pub fn rescheduled(requests: i64, tokens: i64) -> Body {
    Body::KvLoad(KvLoad {
        consequence: Some(Consequence::Recomputed),
        requests: Some(requests),
        tokens: Some(tokens),
        ..KvLoad::default()
    })
}

/// The scheduler failed requests whose load had failed.
pub fn failed_for_load(requests: &[&str]) -> Body {
    Body::KvLoad(KvLoad {
        consequence: Some(Consequence::RequestFailed),
        requests: Some(requests.len().max(1) as i64),
        request_ids: requests.iter().map(|id| (*id).to_owned()).collect(),
        ..KvLoad::default()
    })
}

/// A load from a store failed.
pub fn load_failed(tier: Tier, cause: Cause) -> Body {
    Body::KvLoad(KvLoad { tier: Some(tier), cause: Some(cause), ..KvLoad::default() })
}

/// A lease of a request is in a state.
pub fn lease(request: &str, state: LeaseState) -> Body {
    Body::Lease(Lease { request_id: Some(request.to_owned()), state: Some(state), ..Lease::default() })
}

/// What counters rose by since a time.
pub fn counted(since: &str, values: &[(&str, f64)]) -> Body {
    Body::Counters(Counters {
        since_wall_ns: Some(clock(since).0),
        values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        ..Counters::default()
    })
}

/// What counters stand at.
pub fn totals(totals: &[(&str, f64)]) -> Body {
    Body::Counters(Counters {
        totals: totals.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        ..Counters::default()
    })
}

/// A router's leg to the side that computes the prompt; it received KV parameters.
pub fn prefill_leg(request: &str) -> RequestLeg {
    RequestLeg {
        leg: Some(Role::Prefill),
        request_id: Some(request.to_owned()),
        kv_params_received: Some(true),
        status: Some(200),
        ..RequestLeg::default()
    }
}

/// A router's leg to the side that decodes; it was answered.
pub fn decode_leg(request: &str, kv_params_sent: bool, prompt_tokens: i64) -> RequestLeg {
    RequestLeg {
        leg: Some(Role::Decode),
        request_id: Some(request.to_owned()),
        kv_params_sent: Some(kv_params_sent),
        status: Some(200),
        prompt_tokens: Some(prompt_tokens),
        ..RequestLeg::default()
    }
}

/// A lookup for a request found tokens.
pub fn looked_up(request: &str, asked: i64, hit: i64, needed: i64) -> Body {
    Body::CacheUse(CacheUse {
        request_id: Some(request.to_owned()),
        tier: Some(Tier::Storage),
        asked: Some(asked),
        hit: Some(hit),
        needed: Some(needed),
        ..CacheUse::default()
    })
}

/// A load brought tokens; an empty request names none.
pub fn retrieved(request: &str, tokens: i64) -> Body {
    Body::CacheUse(CacheUse {
        request_id: (!request.is_empty()).then(|| request.to_owned()),
        tier: Some(Tier::Storage),
        retrieved: Some(tokens),
        ..CacheUse::default()
    })
}

/// Weights were replaced in the running engine.
pub fn weights_updated() -> Body {
    Body::AdminCall(AdminCall {
        class: Some(AdminClass::WeightsUpdate),
        outcome: Some(Outcome::Succeeded),
        ..AdminCall::default()
    })
}

/// Tiers were emptied.
pub fn emptied(tiers: &[Tier]) -> Body {
    Body::AdminCall(AdminCall {
        class: Some(AdminClass::CacheReset),
        tiers: tiers.iter().map(|tier| tier.as_str().to_owned()).collect(),
        outcome: Some(Outcome::Succeeded),
        ..AdminCall::default()
    })
}

/// An adapter was loaded from a path.
pub fn adapter_loaded(name: &str, path: &str) -> Body {
    Body::AdminCall(AdminCall {
        class: Some(AdminClass::LoraLoad),
        names: vec![name.to_owned()],
        paths: vec![path.to_owned()],
        outcome: Some(Outcome::Succeeded),
        ..AdminCall::default()
    })
}

/// Something happened to a file or key of a store.
pub fn artifact(store: &str, key: &str, action: ArtifactAction) -> Artifact {
    Artifact {
        store: Some(store.to_owned()),
        key: Some(key.to_owned()),
        action: Some(action),
        ..Artifact::default()
    }
}

/// An artifact was written with a size.
pub fn wrote(store: &str, key: &str, bytes: i64) -> Body {
    Body::Artifact(Artifact { bytes: Some(bytes), ..artifact(store, key, ArtifactAction::Written) })
}

/// An artifact was read with a size.
pub fn read(store: &str, key: &str, bytes: i64) -> Body {
    Body::Artifact(Artifact { bytes: Some(bytes), ..artifact(store, key, ArtifactAction::Read) })
}

/// An artifact was looked up and not there.
pub fn missed(store: &str, key: &str) -> Body {
    Body::Artifact(artifact(store, key, ArtifactAction::Missed))
}

/// An artifact was removed.
pub fn removed(store: &str, key: &str) -> Body {
    Body::Artifact(artifact(store, key, ArtifactAction::Removed))
}

/// An artifact known before was already gone.
pub fn found_gone(store: &str, key: &str) -> Body {
    Body::Artifact(artifact(store, key, ArtifactAction::Gone))
}

/// A key whose parts a grammar names: content and other fields.
pub fn split(store: &str, content: &str, fields: &[(&str, &str)], action: ArtifactAction) -> Body {
    let parts: Vec<String> = fields.iter().map(|(_, value)| (*value).to_owned()).collect();
    Body::Artifact(Artifact {
        grammar: Some("pages".to_owned()),
        content: Some(content.to_owned()),
        fields: fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        bytes: Some(4096),
        ..artifact(store, &format!("{content}_{}", parts.join("_")), action)
    })
}

/// Blocks of comparable content were stored under hashes.
pub fn stored_blocks(blocks: &[(&str, &str)]) -> Block {
    Block {
        action: Some(BlockAction::Stored),
        hashes: blocks.iter().map(|(_, hash)| (*hash).to_owned()).collect(),
        content: blocks.iter().map(|(content, _)| (*content).to_owned()).collect(),
        content_key: Some("fleet-1".to_owned()),
        ..Block::default()
    }
}

/// A printed key derivation: the digest of its tokens and the resulting hash.
pub fn derived(tokens_digest: &str, result: &str) -> KeyDerivation {
    KeyDerivation {
        parent: Some("root".to_owned()),
        tokens_digest: Some(tokens_digest.to_owned()),
        tokens: Some(256),
        result: Some(result.to_owned()),
        ..KeyDerivation::default()
    }
}

/// The store itself or an engine says something of it.
pub fn store_says(event: &str, times: i64) -> Body {
    Body::Store(Store { event: Some(event.to_owned()), times: Some(times), ..Store::default() })
}
