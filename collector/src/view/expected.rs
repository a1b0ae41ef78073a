//! What operators declare that names should mean, over time.
//!
//! The lists of one stream follow each other: each holds from its time until the next. What a later list allows was right before
//! it too, so that a correction takes back what it corrects; what it no longer allows is wrong only from its time on. Of the
//! statements of a list that concern a worker and a name the ones with the narrowest scope hold, and of these the latest; several
//! of one time allow each other. Without a declaration nothing is expected.

use super::Member;
use kvprov_model::clock::WallTime;
use kvprov_model::factor::Factor;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, Role};
use std::collections::{BTreeMap, BTreeSet};

const POOL: &str = "pool";

/// One statement.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// The name that requests ask for; `None`: whatever the worker serves.
    pub alias: Option<String>,
    /// Revisions that it may mean.
    pub revisions: BTreeSet<String>,
    /// Factors that it has to have.
    pub factors: BTreeMap<String, Factor>,
    /// What states it.
    pub observation: Observation,
    role: Option<Role>,
    pool: Option<String>,
    namespace: Option<String>,
    from: Option<WallTime>,
}

/// A source of lists: its name, and the worker for which alone it speaks.
type Speaker = (String, Option<WorkerId>);

/// Every declaration.
#[derive(Debug, Clone, Default)]
pub struct Declared {
    lists: BTreeMap<Speaker, BTreeMap<Option<WallTime>, Vec<Allowed>>>,
}

// === impl Declared ===

impl Declared {
    /// Gathers what observations declare, in whatever order they come.
    pub fn build(observations: &[Observation]) -> Self {
        let mut declared = Self::default();
        for observation in observations {
            let Body::Expected(body) = &observation.body else { continue };
            let envelope = &observation.envelope;
            let speaker = (envelope.stream.clone(), envelope.worker.clone());
            let lists = declared.lists.entry(speaker).or_default();
            let list = lists.entry(body.list_wall_ns.map(WallTime)).or_default();
            if body.revisions.is_empty() && body.factors.is_empty() {
                continue;
            }
            list.push(Allowed {
                alias: body.alias.clone(),
                revisions: body.revisions.iter().cloned().collect(),
                factors: body.factors.iter().map(|(name, text)| (name.clone(), Factor::full(text))).collect(),
                observation: observation.clone(),
                role: body.role.clone(),
                pool: body.pool.clone(),
                namespace: body.namespace.clone(),
                from: body.from_wall_ns.map(WallTime),
            });
        }
        let lists = declared.lists.values_mut().flat_map(BTreeMap::values_mut);
        lists.for_each(|list| {
            list.sort_by_key(|one| (one.observation.envelope.position, one.observation.envelope.id));
        });
        declared
    }

    /// Whether nobody declares anything.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The names that are declared for a worker; `None` stands for whatever it serves.
    pub fn names(&self, member: &Member) -> BTreeSet<Option<&str>> {
        self.of(member).map(|one| one.alias.as_deref()).collect()
    }

    /// Times at which what is expected of a worker may become another thing.
    pub fn turns(&self, member: &Member) -> BTreeSet<WallTime> {
        let lists = self.lists_for(member).flat_map(BTreeMap::keys).flatten().copied();
        lists.chain(self.of(member).filter_map(|one| one.from)).collect()
    }

    /// What a name may mean on a worker from a time on, `None` being the beginning; empty: nothing is declared.
    pub fn in_force(&self, member: &Member, name: Option<&str>, at: Option<WallTime>) -> Vec<&Allowed> {
        let mut allowed = Vec::new();
        for lists in self.lists_for(member) {
            let Some((current, _)) = lists.range(..=at).next_back() else { continue };
            let from_then_on = lists.range(*current..).map(|(_, list)| foremost(list, member, name, at));
            let by_list: Vec<Vec<&Allowed>> = from_then_on.collect();
            // A list that says nothing of the name takes back what was said.
            if by_list.iter().all(|list| !list.is_empty()) {
                allowed.extend(by_list.into_iter().flatten());
            }
        }
        allowed
    }

    fn lists_for<'d>(
        &'d self,
        member: &Member,
    ) -> impl Iterator<Item = &'d BTreeMap<Option<WallTime>, Vec<Allowed>>> {
        let for_it = |of: &Option<WorkerId>| of.as_ref().is_none_or(|worker| *worker == member.id);
        self.lists.iter().filter(move |((_, of), _)| for_it(of)).map(|(_, lists)| lists)
    }

    fn of<'d>(&'d self, member: &Member) -> impl Iterator<Item = &'d Allowed> {
        self.lists_for(member).flat_map(BTreeMap::values).flatten().filter(|one| one.scope(member).is_some())
    }
}

/// The statements of a list that hold for a worker and a name.
fn foremost<'l>(
    list: &'l [Allowed],
    member: &Member,
    name: Option<&str>,
    at: Option<WallTime>,
) -> Vec<&'l Allowed> {
    let holds =
        |one: &&Allowed| one.alias.as_deref() == name && one.from <= at && one.scope(member).is_some();
    let place = |one: &Allowed| (one.scope(member), one.from);
    let holding: Vec<&Allowed> = list.iter().filter(holds).collect();
    let Some(foremost) = holding.iter().map(|one| place(one)).max() else { return Vec::new() };
    holding.into_iter().filter(|one| place(one) == foremost).collect()
}

// === impl Allowed ===

impl Allowed {
    /// How many conditions of its scope a worker meets; `None` where it does not meet one, or that is not known.
    fn scope(&self, member: &Member) -> Option<usize> {
        let conditions = [
            (self.role.as_ref().map(Role::as_str), member.role.as_ref().map(Role::as_str)),
            (self.pool.as_deref(), member.fact(POOL)),
            (self.namespace.as_deref(), member.namespace.as_deref()),
        ];
        let mut met = 0;
        for (wanted, is) in conditions.into_iter().filter(|(wanted, _)| wanted.is_some()) {
            if wanted != is {
                return None;
            }
            met += 1;
        }
        Some(met)
    }
}
