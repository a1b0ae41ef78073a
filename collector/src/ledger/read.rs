//! Reading: the ledger's interface over views, nodes and findings.

use super::block::Block;
use super::index::{IndexKey, IndexKind, Subject};
use super::key::{self, BlockId, StoredKey};
use super::position::{Place, Position};
use super::recent::{Remembered, order};
use super::storage::{Order, Storage};
use super::stored::StoredLedger;
use super::view::{Entry, read_slot};
use super::{Ledger, LedgerError, Merged, Selection, Viewed};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::NodeId;
use kvprov_model::observation::Observation;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, PoisonError};

/// Observations that a visit holds at once, beside those of one and the same time.
const PAGE: usize = 512;

impl<S: Storage> Ledger for StoredLedger<S> {
    fn merge(&mut self, observations: &[Observation]) -> Result<Merged, LedgerError> {
        self.merge_batch(observations)
    }

    fn visit(
        &self,
        key: &IndexKey,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let stored = StoredKey::of(key.kind(), key.name());
        let (undated, _) = self.newest(&stored, false, self.limits.selection)?;
        for observation in self.load_undated(undated)? {
            if visit(observation).is_break() {
                return Ok(());
            }
        }
        // 32 bytes an entry are held, but never all observations.
        let mut entries: Vec<Entry> = Vec::new();
        self.each_entry(&stored, true, &mut |entry| {
            entries.push(entry);
            Ok(())
        })?;
        entries.sort_unstable();
        let mut page = Vec::with_capacity(PAGE);
        for same_time in entries.chunk_by(|a, b| a.0 == b.0) {
            page.extend(same_time.iter().map(|(_, place)| *place));
            if page.len() >= PAGE && self.visit_page(std::mem::take(&mut page), visit)?.is_break() {
                return Ok(());
            }
        }
        self.visit_page(page, visit).map(|_| ())
    }

    fn select(&self, key: &IndexKey) -> Result<Selection, LedgerError> {
        let stored = StoredKey::of(key.kind(), key.name());
        let limit = self.limits.selection;
        // Declarations and settings are often undated and matter most: they get up to half.
        let (undated, cut_undated) = self.newest(&stored, false, limit.div_ceil(2))?;
        let mut observations = self.load_undated(undated)?;
        let (dated, cut_dated) = self.newest(&stored, true, limit - observations.len().min(limit))?;
        observations.extend(self.load(dated)?);
        Ok(Selection { observations, cut: cut_undated + cut_dated })
    }

    fn view(&self, key: &IndexKey) -> Result<Viewed, LedgerError> {
        // After a commit that failed nothing tells which batches are whole.
        if self.torn {
            return Ok(self.select(key)?.in_order());
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match recent.take(key) {
            Some(known) => self.with_what_came_since(key, known)?,
            None => None,
        };
        let viewed = match known {
            Some(observations) => Viewed { observations, cut: 0 },
            None => self.select(key)?.in_order(),
        };
        if viewed.cut == 0 {
            recent.put(key, &viewed.observations, self.next_batch, self.floors);
        }
        Ok(viewed)
    }

    fn keys(&self, kind: IndexKind) -> Result<Vec<IndexKey>, LedgerError> {
        self.listed(kind, self.limits.selection)
    }

    fn watermark(&self, node: &NodeId) -> Option<WallTime> {
        self.nodes.get(node)?.newest
    }

    fn watermarks(&self) -> BTreeMap<NodeId, WallTime> {
        self.nodes.states().filter_map(|state| Some((state.node.clone(), state.newest?))).collect()
    }

    fn findings(&self, subject: &Subject) -> Result<Vec<Finding>, LedgerError> {
        self.findings_on(subject)
    }

    fn put_findings(&mut self, subject: &Subject, findings: &[Finding]) -> Result<(), LedgerError> {
        self.replace_findings(subject, findings)
    }

    fn all_findings(&self) -> Result<BTreeMap<Subject, Vec<Finding>>, LedgerError> {
        self.findings_by_subject()
    }
}

impl<S: Storage> StoredLedger<S> {
    /// Hands every observation to `visit`, in the order of ids, until it breaks.
    pub fn each_observation(
        &self,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<(), LedgerError> {
        let mut outcome = Ok(());
        let prefix = [key::PLACE];
        self.storage.scan(
            &prefix,
            key::prefix_end(&prefix).as_deref(),
            Order::Ascending,
            &mut |_, value| match Place::read(value).map(|place| self.observation(place)) {
                Some(Ok(Some(observation))) => visit(observation),
                Some(Ok(None)) | None => ControlFlow::Continue(()),
                Some(Err(error)) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        outcome
    }

    fn observation(&self, place: Place) -> Result<Option<Observation>, LedgerError> {
        let mut observation = Ok(None);
        self.storage.get_with(&BlockId::of(place).key(), &mut |bytes| {
            observation = Block::read(bytes).and_then(|block| read_slot(&block, place));
        })?;
        Ok(observation?.map(|(_, observation)| observation))
    }

    /// A view that was read before, with what came since; `None` where it has to be read anew.
    fn with_what_came_since(
        &self,
        key: &IndexKey,
        mut known: Remembered,
    ) -> Result<Option<Arc<Vec<Observation>>>, LedgerError> {
        // Somebody still looks at it as it was.
        let Some(held) = Arc::get_mut(&mut known.observations) else { return Ok(None) };
        if known.floors != self.floors {
            held.retain(|observation| {
                let state = self.nodes.get(&observation.envelope.node);
                state.is_none_or(|state| state.admits(&Position::of(&observation.envelope)))
            });
        }
        let stored = StoredKey::of(key.kind(), key.name());
        let mut places = Vec::new();
        for dated in [false, true] {
            self.each_entry_since(&stored, known.next, dated, &mut |(_, place)| {
                places.push(place);
                Ok(())
            })?;
        }
        // What nothing dates gets half of a selection: with fewer than that nothing is cut.
        if held.len() + places.len() > self.limits.selection / 2 {
            return Ok(None);
        }
        let mut new = self.load(places)?;
        if !new.is_empty() {
            new.sort_by(|a, b| order(a).cmp(&order(b)));
            let follows =
                held.last().zip(new.first()).is_none_or(|(last, first)| order(last) <= order(first));
            held.append(&mut new);
            if !follows {
                held.sort_by(|a, b| order(a).cmp(&order(b)));
            }
        }
        Ok(Some(known.observations))
    }

    fn visit_page(
        &self,
        page: Vec<Place>,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LedgerError> {
        for observation in self.load(page)? {
            if visit(observation).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn load_undated(&self, places: Vec<Place>) -> Result<Vec<Observation>, LedgerError> {
        let mut observations = self.load(places)?;
        observations.sort_by(undated_order);
        Ok(observations)
    }
}

fn undated_order(a: &Observation, b: &Observation) -> std::cmp::Ordering {
    let order = |observation: &Observation| (observation.envelope.position, observation.envelope.id);
    a.envelope.stream.cmp(&b.envelope.stream).then_with(|| order(a).cmp(&order(b)))
}
