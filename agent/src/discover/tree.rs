//! Which process belongs to which worker.
//!
//! A worker is the tree below its leader, without the trees of other leaders in it. What lost its parent stays where it was.
//! A process that an engine must have started, without a leader above it, stands for its tree: the leader died before the
//! agent came, or its arguments tell nothing.

use super::container::path_of;
use super::known::{Known, Table};
use super::system::{ProcessKey, Processes};
use kvprov_packs::{Packs, ProcessPlace, ProcessSignature};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Deeper trees are cut.
const MAX_DEPTH: usize = 1024;

/// The process that a worker is named after.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root<'p> {
    /// The entry that tells its settings.
    pub signature: &'p ProcessSignature,
    /// Whether its arguments are those of the entry.
    pub started_as: bool,
    /// Hash of the arguments that it was started with, before it may have overwritten them.
    pub print: Option<u64>,
}

/// Workers by leader, with their living processes.
#[derive(Debug, Default)]
pub(super) struct Forest<'p> {
    pub roots: BTreeMap<ProcessKey, Root<'p>>,
    pub members: BTreeMap<ProcessKey, BTreeSet<ProcessKey>>,
}

/// Sorts all processes into workers. `before`: the workers of the last look, by leader, dead or alive.
pub(super) fn grow<'p>(
    system: &dyn Processes,
    packs: &'p Packs,
    table: &Table<'p>,
    before: &BTreeMap<ProcessKey, Root<'p>>,
) -> Forest<'p> {
    let mut owners = Owners { table, before, stand_ins: BTreeMap::new(), adopted: HashMap::new() };
    for (key, root) in before {
        if !root.started_as && table.get(*key).is_some() {
            owners.stand_ins.insert(*key, *root);
        }
    }
    let mut owner_of = owners.all();
    let orphans: Vec<&Known<'p>> = table
        .all
        .values()
        .filter(|known| is_member(known) && owner_of.get(&known.key.pid).copied().flatten().is_none())
        .collect();
    if !orphans.is_empty() {
        owners.place(system, packs, &orphans, &owner_of);
        owner_of = owners.all();
    }
    let mut forest = Forest::default();
    for known in table.all.values() {
        let Some(root) = owner_of.get(&known.key.pid).copied().flatten() else { continue };
        forest.members.entry(root).or_default().insert(known.key);
    }
    for key in forest.members.keys() {
        let root = leader(table, *key)
            .or_else(|| owners.stand_ins.get(key).copied())
            .or_else(|| before.get(key).copied());
        if let Some(root) = root {
            forest.roots.insert(*key, root);
        }
    }
    forest
}

/// A living process that was started as a leader, as far as its arguments still tell.
fn leader<'p>(table: &Table<'p>, key: ProcessKey) -> Option<Root<'p>> {
    let known = table.get(key)?;
    let signature = known.signature.filter(|signature| is_leader(signature))?;
    Some(Root { signature, started_as: true, print: Some(known.print) })
}

pub(super) fn is_leader(signature: &ProcessSignature) -> bool {
    signature.place == ProcessPlace::Leader
}

fn is_member(known: &Known<'_>) -> bool {
    known.signature.is_some_and(|signature| signature.place == ProcessPlace::Member)
}

struct Owners<'a, 'p> {
    table: &'a Table<'p>,
    before: &'a BTreeMap<ProcessKey, Root<'p>>,
    /// Roots that are no leaders by their arguments.
    stand_ins: BTreeMap<ProcessKey, Root<'p>>,
    /// Processes that belong to a root without being below it.
    adopted: HashMap<ProcessKey, ProcessKey>,
}

// === impl Owners ===

impl<'p> Owners<'_, 'p> {
    /// The root of every process that has one.
    fn all(&self) -> HashMap<u32, Option<ProcessKey>> {
        let mut owner_of = HashMap::with_capacity(self.table.all.len());
        let mut chain: Vec<&Known<'p>> = Vec::new();
        for pid in self.table.all.keys() {
            let mut at = *pid;
            let mut above = None;
            chain.clear();
            while chain.len() < MAX_DEPTH {
                let Some(known) = self.table.all.get(&at) else { break };
                // Who started later is not the parent but has its number.
                if chain.last().is_some_and(|child| known.key.start > child.key.start) {
                    break;
                }
                if let Some(root) = owner_of.get(&at) {
                    above = *root;
                    break;
                }
                chain.push(known);
                at = known.parent;
            }
            for known in chain.iter().rev() {
                above = self.owner(known, above);
                owner_of.insert(known.key.pid, above);
            }
        }
        owner_of
    }

    /// The root of a process whose parent has the root `above`.
    fn owner(&self, known: &Known<'p>, above: Option<ProcessKey>) -> Option<ProcessKey> {
        if let Some(signature) = known.signature.filter(|signature| is_leader(signature)) {
            // A child that has not called exec, or was started with the very same words, is no engine of its own.
            let is_copy = |root: &ProcessKey| {
                let root = leader(self.table, *root).or_else(|| self.before.get(root).copied());
                root.is_some_and(|root| root.print == Some(known.print) && root.signature.id == signature.id)
            };
            let orphaned =
                || known.worker.filter(|root| *root != known.key && self.table.get(*root).is_none());
            return above.or_else(orphaned).filter(is_copy).or(Some(known.key));
        }
        let own = || self.stand_ins.contains_key(&known.key).then_some(known.key);
        let adopted = || self.adopted.get(&known.key).copied();
        let remembered = || known.worker.filter(|root| self.before.contains_key(root));
        above.or_else(own).or_else(adopted).or_else(remembered)
    }

    /// Finds a root for processes that have none above them.
    fn place(
        &mut self,
        system: &dyn Processes,
        packs: &'p Packs,
        orphans: &[&Known<'p>],
        owner_of: &HashMap<u32, Option<ProcessKey>>,
    ) {
        let mut groups: BTreeMap<(&str, u32), Vec<&Known<'p>>> = BTreeMap::new();
        for orphan in orphans {
            let Some(signature) = orphan.signature else { continue };
            let parent = self.table.all.get(&orphan.parent);
            let parent = parent.filter(|parent| parent.key.start <= orphan.key.start);
            if parent.is_some_and(is_member) {
                continue; // Not the topmost.
            }
            if signature.detached
                && let Some(root) = self.only_leader(system, &signature.engine, orphan.key.pid, owner_of)
            {
                self.adopted.insert(orphan.key, root);
            } else if let Some(host) = parent.filter(|parent| {
                is_host(system, parent, orphan) && self.table.is_in_scope(system, parent.key.pid)
            }) {
                self.stand_ins.insert(host.key, stand_in(packs, signature));
            } else {
                groups.entry((&signature.engine, orphan.session)).or_default().push(orphan);
            }
        }
        for group in groups.values() {
            let Some(first) = group.iter().min_by_key(|known| (known.key.start, known.key.pid)) else {
                continue;
            };
            if let Some(signature) = first.signature {
                self.stand_ins.insert(first.key, stand_in(packs, signature));
            }
            self.adopted.extend(group.iter().map(|known| (known.key, first.key)));
        }
    }

    /// The leader of an engine in the cgroup of a process, if there is one and no other.
    fn only_leader(
        &self,
        system: &dyn Processes,
        engine: &str,
        pid: u32,
        owner_of: &HashMap<u32, Option<ProcessKey>>,
    ) -> Option<ProcessKey> {
        let cgroup = system.cgroup(pid).ok()?;
        let roots: BTreeSet<ProcessKey> = owner_of.values().copied().flatten().collect();
        let mut fitting = roots.into_iter().filter(|root| {
            let leads = self.table.get(*root).and_then(|known| known.signature);
            leads.is_some_and(|signature| is_leader(signature) && signature.engine == engine)
                && system.cgroup(root.pid).is_ok_and(|other| path_of(&other) == path_of(&cgroup))
        });
        let only = fitting.next()?;
        fitting.next().is_none().then_some(only)
    }
}

/// Whether a process that fits no entry runs the engine that its child belongs to: the same interpreter.
fn is_host(system: &dyn Processes, parent: &Known<'_>, child: &Known<'_>) -> bool {
    let same = || {
        let own = system.executable(parent.key.pid).ok()?;
        Some(own == system.executable(child.key.pid).ok()?)
    };
    parent.key.pid > 1 && parent.signature.is_none() && same().unwrap_or(false)
}

/// A root whose arguments tell nothing: its settings are read as those of its engine's leaders.
fn stand_in<'p>(packs: &'p Packs, signature: &'p ProcessSignature) -> Root<'p> {
    let of_leader = packs
        .processes()
        .entries()
        .find(|entry| entry.engine == signature.engine && is_leader(entry))
        .unwrap_or(signature);
    Root { signature: of_leader, started_as: false, print: None }
}
