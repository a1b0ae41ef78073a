//! Ids of requests in observations.

use kvprov_model::id::RequestStem;
use kvprov_model::observation::{Body, Observation};

/// Every printed request id in an observation.
pub fn printed_ids(observation: &Observation) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    match &observation.body {
        Body::RequestLeg(leg) => {
            ids.extend(
                [&leg.request_id, &leg.reply_id, &leg.remote_request_id]
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
        Body::Transfer(transfer) => {
            ids.extend(
                [&transfer.request_id, &transfer.remote_request_id].into_iter().flatten().map(String::as_str),
            );
            ids.extend(transfer.request_ids.iter().map(String::as_str));
        }
        Body::Handshake(handshake) => ids.extend(handshake.request_ids.iter().map(String::as_str)),
        Body::Lease(lease) => ids.extend(lease.request_id.as_deref()),
        Body::KvLoad(load) => ids.extend(load.request_ids.iter().map(String::as_str)),
        Body::CacheUse(used) => ids.extend(used.request_id.as_deref()),
        _ => {}
    }
    ids
}

/// The stems of [`printed_ids`], each once.
pub fn stems(observation: &Observation) -> Vec<RequestStem> {
    let mut stems: Vec<RequestStem> = printed_ids(observation).into_iter().map(RequestStem::of).collect();
    stems.sort();
    stems.dedup();
    stems
}
