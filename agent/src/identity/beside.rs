//! Which files of a worker are of another model than its own: of the draft of a speculative decoding, or of an adapter.
//!
//! Of weights opened in several directories during one start the largest are the model's. Other files count where the model's
//! weights are; without any there, those that were opened first. A tokenizer or template beside an adapter is not the model's.
//! A chat template where nothing else of a model lies was given to the engine and stands above the model's own.

use super::LoadKey;
use super::load::{Load, TEMPLATE};
use kvprov_model::id::WorkerId;
use std::collections::{BTreeMap, BTreeSet};

/// Weights opened in another directory this soon after are of the same start: of a draft model, or the model's own
/// after it.
pub(super) const ONE_START: i64 = 120 * kvprov_model::clock::SECOND;

/// Loads that are of another model.
pub(super) fn of(loads: &BTreeMap<LoadKey, Load>) -> BTreeSet<LoadKey> {
    let mut beside = BTreeSet::new();
    let mut of_worker: Vec<(&LoadKey, &Load)> = Vec::new();
    let mut worker: Option<&WorkerId> = None;
    for (key, load) in loads {
        if worker.is_some_and(|worker| *worker != key.worker) {
            judge(&of_worker, &mut beside);
            of_worker.clear();
        }
        worker = Some(&key.worker);
        of_worker.push((key, load));
    }
    judge(&of_worker, &mut beside);
    beside
}

/// Of the loads of one worker.
fn judge(loads: &[(&LoadKey, &Load)], beside: &mut BTreeSet<LoadKey>) {
    let of_factor = |factor: &'static str| loads.iter().filter(move |(key, _)| key.factor == factor);
    let adapters: BTreeSet<&str> = of_factor("adapter").map(|(key, _)| key.directory.as_str()).collect();
    let mut own_weights = BTreeSet::new();
    let mut other_weights = BTreeSet::new();
    for (key, load) in of_factor("weights") {
        let is_smaller = of_factor("weights").any(|(other_key, other)| {
            other_key.directory != key.directory
                && load.first.since(other.first).abs() <= ONE_START
                && (load.size(), &key.directory) < (other.size(), &other_key.directory)
        });
        if is_smaller {
            beside.insert((*key).clone());
            other_weights.insert(key.directory.as_str());
        } else {
            own_weights.insert(key.directory.as_str());
        }
    }
    let may_be_own = |key: &LoadKey| {
        !adapters.contains(key.directory.as_str()) && !other_weights.contains(key.directory.as_str())
    };
    let given = of_factor(TEMPLATE).find(|(key, load)| {
        let is_alone =
            !loads.iter().any(|(other, _)| other.directory == key.directory && other.factor != TEMPLATE);
        load.is_template_alone() && is_alone && !own_weights.is_empty()
    });
    if let Some((given, _)) = given {
        beside.extend(of_factor(TEMPLATE).filter(|(key, _)| key != given).map(|(key, _)| (*key).clone()));
    }
    let is_decided = |key: &LoadKey| given.is_some() && key.factor == TEMPLATE;
    let rest = loads.iter().filter(|(key, _)| !matches!(key.factor.as_str(), "weights" | "adapter"));
    for (key, load) in rest.filter(|(key, _)| !is_decided(key)) {
        let came_before = |other_key: &LoadKey, other: &Load| {
            let first = (other.first, other.position) < (load.first, load.position);
            other_key.factor == key.factor
                && other_key.directory != key.directory
                && may_be_own(other_key)
                && load.first.since(other.first).abs() <= ONE_START
                && (own_weights.contains(other_key.directory.as_str()) || first)
        };
        let is_own = may_be_own(key)
            && (own_weights.contains(key.directory.as_str())
                || !loads.iter().any(|(other_key, other)| came_before(other_key, other)));
        if !is_own {
            beside.insert((*key).clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::cache::FileKey;
    use kvprov_model::clock::WallTime;

    /// Loads of one worker: factor, directory, second of the open, bytes.
    fn beside(opened: &[(&str, &str, i64, u64)]) -> Vec<String> {
        let named: Vec<_> = opened.iter().map(|(of, in_, at, size)| (*of, *in_, *at, *size, "f")).collect();
        judged(&named)
    }

    /// The same with names of files in place of their bytes.
    fn beside_named(opened: &[(&str, &str, i64, &str)]) -> Vec<String> {
        let sized: Vec<_> = opened.iter().map(|(of, in_, at, name)| (*of, *in_, *at, 1, *name)).collect();
        judged(&sized)
    }

    fn judged(opened: &[(&str, &str, i64, u64, &str)]) -> Vec<String> {
        let mut loads = BTreeMap::new();
        for (position, (factor, directory, seconds, size, name)) in opened.iter().enumerate() {
            let (factor, directory) = ((*factor).to_owned(), (*directory).to_owned());
            let key = LoadKey { worker: WorkerId("w".to_owned()), factor: factor.clone(), directory };
            let wall = WallTime(seconds * kvprov_model::clock::SECOND);
            let mut load = Load::new(&factor, "/", wall, position as u64);
            let file = FileKey { device: 1, inode: position as u64, size: *size, modified: 1, changed: 1 };
            load.opened(name, Some(file), "/", wall, position as u64);
            loads.insert(key, load);
        }
        of(&loads).into_iter().map(|key| format!("{} {}", key.factor, key.directory)).collect()
    }

    #[test]
    fn a_draft_has_weights_and_settings_of_its_own() {
        let opened = [
            ("config", "/draft", 1, 1),
            ("config", "/model", 2, 1),
            ("weights", "/model", 3, 100),
            ("weights", "/draft", 4, 10),
        ];
        assert_eq!(beside(&opened), ["config /draft", "weights /draft"]);
    }

    #[test]
    fn settings_opened_before_any_weights_are_those_that_came_first() {
        assert_eq!(beside(&[("config", "/a", 2, 1), ("config", "/b", 1, 1)]), ["config /a"]);
    }

    #[test]
    fn a_tokenizer_beside_an_adapter_is_not_the_models() {
        let opened =
            [("tokenizer", "/ad", 900, 1), ("adapter", "/ad", 901, 1), ("tokenizer", "/model", 1, 1)];
        assert_eq!(beside(&opened), ["tokenizer /ad"]);
    }

    #[test]
    fn a_template_that_was_given_stands_above_the_models_own() {
        let opened = [
            (TEMPLATE, "/model", 1, 1),
            ("weights", "/model", 2, 100),
            ("tokenizer", "/model", 1, 1),
            (TEMPLATE, "/etc/engine", 40, 1),
        ];
        let [own, weights, tokenizer, given] = opened.map(|(factor, directory, second, _)| {
            (factor, directory, second, if factor == TEMPLATE { "a.jinja" } else { "f" })
        });
        assert_eq!(beside_named(&[own, weights, tokenizer, given]), ["chat_template /model"]);
        assert!(beside_named(&[own, weights, tokenizer]).is_empty());
        // A template beside a tokenizer or an adapter of its own is of that model.
        let other = ("tokenizer", "/etc/engine", 41, "f");
        assert_eq!(
            beside_named(&[own, weights, tokenizer, given, other]),
            ["chat_template /etc/engine", "tokenizer /etc/engine"]
        );
    }

    #[test]
    fn what_is_opened_much_later_is_what_the_worker_was_updated_to() {
        let opened = [
            ("weights", "/a", 1, 100),
            ("weights", "/b", 900, 10),
            ("config", "/a", 1, 1),
            ("config", "/b", 900, 1),
        ];
        assert!(beside(&opened).is_empty());
    }
}
