//! `cross_revision_hit`: KV of one compatibility group was consumed under another.
//!
//! Four ways, a file each: over a prefill/decode pair, from a store whose artifacts are seen, from a store that is a server
//! and tells what it gave out, from an engine's own caches after its weights or an adapter changed. Beside them stands what
//! those ask: for which adapter a store was touched (`asked`) or a block is kept (`stored_for`), and whether a cache holds
//! nothing old any more (`renewed`). Confirmed only where content digests on both sides differ; a commit or a name is no digest.

mod asked;
mod by_cache;
mod by_pair;
mod by_server;
mod by_store;
mod renewed;
mod stored_for;

use super::draft::Draft;
use super::{Subject, words};
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::factor::Factors;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};

/// The complete set of findings.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    match subject {
        Subject::Worker(worker) => {
            let mut findings = by_pair::detect(view, worker);
            findings.extend(by_cache::detect(view, worker));
            findings.extend(by_server::detect(view, worker));
            findings
        }
        Subject::Store(store) => by_store::detect(view, store),
        Subject::Fleet => Vec::new(),
    }
}

/// The cause that stands for a semantic factor.
pub(super) fn cause_of(factor: &str) -> Cause {
    match factor {
        "weights" => Cause::Weights,
        "adapter" => Cause::Adapter,
        "tokenizer" => Cause::Tokenizer,
        "chat_template" => Cause::ChatTemplate,
        "config" => Cause::Config,
        "quantisation" => Cause::Quantisation,
        _ => Cause::Unknown,
    }
}

/// The factor in which two sides are known to differ, and how sure that makes it.
fn difference(made: &Factors, used: &Factors) -> Option<(Cause, Confidence, String)> {
    let factor = made.first_difference(used)?;
    let (a, b) = (made.0.get(factor)?, used.0.get(factor)?);
    let digests = a.is_content_digest() && b.is_content_digest();
    let confidence = if digests { Confidence::Confirmed } else { Confidence::Suspected };
    let short = |value: &str| value.chars().take(12).collect::<String>();
    Some((
        cause_of(factor),
        confidence,
        format!("{factor} {} made it, {} used it", short(&a.value), short(&b.value)),
    ))
}

/// The element type in which two sides keep KV, where both are known and differ: bytes of the one that are read as the other
/// are something else. A type of its own for KV stands over the model's.
fn element_type(made: &Member, used: &Member) -> Option<(Cause, Confidence, String)> {
    let (made, used) = (element_type_of(made)?, element_type_of(used)?);
    (made != used).then(|| {
        let what = format!("KV is {made} on one side, {used} on the other");
        (Cause::Representation, Confidence::Suspected, what)
    })
}

/// The commits of one repository that two sides were seen or told to load, where no digest of what they loaded is known.
fn commit(made: &Member, used: &Member, opened: (&Factors, &Factors)) -> Option<(Cause, Confidence, String)> {
    let is_commit = |value: &&str| value.len() == 40 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = |name: &str| made.fact(name).zip(used.fact(name));
    let seen = opened_commit(opened.0).zip(opened_commit(opened.1));
    let (made_of, used_of) = seen.or_else(|| known(fact::MODEL_REVISION))?;
    let is_one_model = known(fact::MODEL_PATH).is_some_and(|(made, used)| made == used);
    if made_of == used_of || !is_one_model || ![made_of, used_of].iter().all(is_commit) {
        return None;
    }
    let what = format!("revision {} of the model made it, {} used it", &made_of[..12], &used_of[..12]);
    Some((Cause::Weights, Confidence::Suspected, what))
}

/// The commit in the path of the weights that a worker opened, which stands for a digest that is not known.
fn opened_commit(factors: &Factors) -> Option<&str> {
    let weights = factors.0.get("weights")?;
    (weights.algorithm == "commit").then_some(weights.value.as_str())
}

/// How two sides lay bytes out under one key of a store, where both are known and differ and no side converts: heads before
/// tokens or after; the parts of several ranks one after the other.
fn arrangement(made: &Member, used: &Member) -> Option<(Cause, Confidence, String)> {
    let known = |name: &str| made.fact(name).zip(used.fact(name));
    if [made, used].iter().any(|member| member.fact(fact::STORE_LAYOUT) == Some("canonical")) {
        return None;
    }
    let differs = |(made, used): &(&str, &str)| made != used;
    if let Some((made, used)) = known(fact::KV_LAYOUT).filter(differs) {
        let what = format!("the layout of KV is {made} on one side, {used} on the other");
        return Some((Cause::Representation, Confidence::Suspected, what));
    }
    // Latent attention keeps the same bytes on every rank.
    let is_replicated = |member: &Member| {
        member
            .fact(fact::ATTENTION_BACKEND)
            .is_some_and(|backend| backend.to_ascii_uppercase().contains("MLA"))
    };
    let (made_of, used_of) = known(fact::TP_SIZE).filter(differs)?;
    let (made_layout, used_layout) = known(fact::STORE_LAYOUT)?;
    if made_layout != "direct" || used_layout != "direct" || is_replicated(made) || is_replicated(used) {
        return None;
    }
    let what = format!("{made_of} ranks laid the bytes one after the other, {used_of} read them");
    Some((Cause::Representation, Confidence::Suspected, what))
}

/// The element type of a worker's KV, under one of its names.
fn element_type_of(member: &Member) -> Option<&str> {
    let named = |name: &str| member.fact(name).filter(|value| *value != "auto");
    let value = named(fact::KV_CACHE_DTYPE).or_else(|| named(fact::DTYPE))?;
    Some(match value.strip_prefix("torch.").unwrap_or(value) {
        "half" | "fp16" => "float16",
        "bf16" => "bfloat16",
        "float" | "fp32" => "float32",
        "fp8" | "float8_e4m3fn" => "fp8_e4m3",
        "float8_e5m2" => "fp8_e5m2",
        other => other,
    })
}

fn finish(draft: Draft, cause: &Cause, what: String) -> Finding {
    draft.finish(what, words::advice(&Detector::CrossRevisionHit, cause))
}
