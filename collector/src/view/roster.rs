//! The roster: every worker with what is known of it, merged field by field from observations in any order.

use super::timeline::Timeline;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use kvprov_model::factor::{Factor, FactorState, Factors};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{AdminClass, Body, Envelope, Observation, Outcome, Role, SourceKind};
use std::collections::{BTreeMap, BTreeSet};

/// How long after its end a worker may be spoken of as if it ran.
const END_SLACK: i64 = SECOND;

/// How long the load of an adapter may take.
const LOAD: i64 = 60 * SECOND;

/// One worker.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name.
    pub id: WorkerId,
    /// Its node.
    pub node: NodeId,
    /// Its engine, where known.
    pub engine: Option<String>,
    /// Its version, where known.
    pub version: Option<String>,
    /// Its role as declared, else as its settings tell.
    pub role: Option<Role>,
    /// Engine ids by which peers know it.
    pub engine_ids: BTreeSet<String>,
    /// Normalised settings.
    pub facts: BTreeMap<String, String>,
    /// Where facts come from, where a source says.
    pub fact_origins: BTreeMap<String, String>,
    /// Kinds of sources that watch it.
    pub watched_by: BTreeSet<String>,
    /// When its end was seen.
    pub gone: Option<WallTime>,
    /// The signal that ended it, where seen.
    pub exit_signal: Option<i64>,
    /// The status with which it ended, where seen.
    pub exit_status: Option<i64>,
    /// Settings as its arguments and environment show them.
    pub settings: BTreeMap<String, String>,
    /// Process ids of its tree.
    pub pids: BTreeSet<String>,
    /// Its Kubernetes pod, where it has one.
    pub pod: Option<String>,
    /// Namespace of the pod, where known.
    pub namespace: Option<String>,
    /// Its container, where it is in one whose name is known.
    pub container: Option<String>,
    /// Image of the container, as it was asked for.
    pub image: Option<String>,
    /// Digest of that image.
    pub image_digest: Option<String>,
    /// Records lost of it, by stage and reason.
    pub losses: BTreeMap<(String, String), u64>,
    /// The first and the last time at which something was said of who it is.
    pub told: Option<(WallTime, WallTime)>,
    /// A factor is declared to hold from the beginning, whenever that was.
    is_undated: bool,
    /// Factors of the worker over time.
    factors: BTreeMap<String, Timeline<Factor>>,
    /// Factors that are not fully known: they stand only where no full one does.
    hints: BTreeMap<String, Timeline<Factor>>,
    /// Why a factor is not known, by factor and adapter: from when, and the words.
    reasons: BTreeMap<(String, Option<String>), (Option<WallTime>, String)>,
    /// Factors of adapters over time, by adapter name or by the directory of its files.
    adapters: BTreeMap<String, Timeline<Factor>>,
    /// Where the files of each adapter are, by the name that requests use, over time.
    directories: BTreeMap<String, Timeline<String>>,
    /// When an engine said that it loaded an adapter, by the directory of its files.
    adapter_loads: BTreeMap<String, BTreeSet<WallTime>>,
    /// The file or call that shows a factor, by factor, adapter and the time from which it holds.
    origins: BTreeMap<(String, Option<String>, Option<WallTime>), String>,
}

/// A factor as it was last stated.
#[derive(Debug, Clone, Copy)]
pub struct Stated<'m> {
    /// Its name.
    pub name: &'m str,
    /// The adapter that has it; `None`: the worker itself.
    pub adapter: Option<&'m str>,
    /// From when it holds; `None`: from the beginning.
    pub since: Option<WallTime>,
    /// The factor.
    pub factor: &'m Factor,
    /// The file or call that shows it, where a source says.
    pub origin: Option<&'m str>,
}

/// Every worker.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    members: BTreeMap<WorkerId, Member>,
    /// Who answers requests at a port, whatever the host: every leg of a request asks.
    at_port: BTreeMap<String, Vec<WorkerId>>,
}

// === impl Roster ===

impl Roster {
    /// Merges observations. A setting beats a start-up line beats a default; among equals the later time wins and,
    /// at one time, the greater text, so that the order of the input does not matter.
    pub fn build(observations: &[Observation]) -> Self {
        let mut members: BTreeMap<WorkerId, Member> = BTreeMap::new();
        let mut ranked: Vec<&Observation> = observations.iter().collect();
        ranked.sort_by_key(|o| {
            let configured = o.envelope.source == SourceKind::Config;
            (configured, o.envelope.wall, o.envelope.id)
        });
        for observation in ranked {
            let Some(worker) = &observation.envelope.worker else { continue };
            let member = members.entry(worker.clone()).or_insert_with(|| Member {
                id: worker.clone(),
                node: observation.envelope.node.clone(),
                engine: None,
                version: None,
                role: None,
                engine_ids: BTreeSet::new(),
                facts: BTreeMap::new(),
                fact_origins: BTreeMap::new(),
                watched_by: BTreeSet::new(),
                gone: None,
                exit_signal: None,
                exit_status: None,
                settings: BTreeMap::new(),
                pids: BTreeSet::new(),
                pod: None,
                namespace: None,
                container: None,
                image: None,
                image_digest: None,
                losses: BTreeMap::new(),
                told: None,
                is_undated: false,
                factors: BTreeMap::new(),
                hints: BTreeMap::new(),
                reasons: BTreeMap::new(),
                adapters: BTreeMap::new(),
                directories: BTreeMap::new(),
                adapter_loads: BTreeMap::new(),
                origins: BTreeMap::new(),
            });
            member.take(observation);
        }
        members.values_mut().for_each(Member::place_adapters);
        for member in members.values_mut().filter(|member| member.role.is_none()) {
            member.role = member.fact(fact::ROLE).map(Role::from);
        }
        let mut at_port: BTreeMap<String, Vec<WorkerId>> = BTreeMap::new();
        for member in members.values() {
            if let Some(port) = member.fact(fact::HTTP_ADDRESS).and_then(port_of) {
                at_port.entry(port.to_owned()).or_default().push(member.id.clone());
            }
        }
        Self { members, at_port }
    }

    /// Every worker by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// One worker.
    pub fn get(&self, worker: &WorkerId) -> Option<&Member> {
        self.members.get(worker)
    }

    /// The worker that a peer knows under this engine id. Data parallel ranks add `_dp<rank>`.
    pub fn by_engine_id(&self, engine_id: &str) -> Option<&Member> {
        let base = engine_id.rsplit_once("_dp").map_or(engine_id, |(base, _)| base);
        self.members().find(|m| m.engine_ids.contains(engine_id) || m.engine_ids.contains(base))
    }

    /// Workers that only decode.
    pub fn decoders(&self) -> impl Iterator<Item = &Member> {
        self.members().filter(|m| m.role == Some(Role::Decode))
    }

    /// Workers that compute prompts for others.
    pub fn prefillers(&self) -> impl Iterator<Item = &Member> {
        self.members().filter(|m| m.role == Some(Role::Prefill))
    }

    /// Workers that route.
    pub fn routers(&self) -> impl Iterator<Item = &Member> {
        self.members().filter(|m| m.role == Some(Role::Router))
    }

    /// The worker that answered at an endpoint (`host:port` or URL): by its own port where that is unique, else the only
    /// worker of the role that the leg names. Of those that had a port one after the other, it is the one that ran when the
    /// leg was told, as far as one clock tells both.
    pub fn by_endpoint(
        &self,
        endpoint: Option<&str>,
        role: &Role,
        told: Option<&Envelope>,
    ) -> Option<&Member> {
        if let Some(port) = endpoint.and_then(port_of) {
            let at_port = self.at_port.get(port).into_iter().flatten().filter_map(|id| self.members.get(id));
            if let Some(member) = only_at(at_port, told) {
                return Some(member);
            }
        }
        only_at(self.members().filter(|m| m.role.as_ref() == Some(role)), told)
    }
}

/// The only one of some workers, or the only one of them that can have run when something was told.
fn only_at<'m>(members: impl Iterator<Item = &'m Member>, told: Option<&Envelope>) -> Option<&'m Member> {
    let all: Vec<&Member> = members.collect();
    match (all.as_slice(), told.and_then(|told| Some((&told.node, told.wall?)))) {
        ([only], _) => Some(only),
        (_, None) => None,
        (several, Some((node, at))) => {
            let mut running = several.iter().filter(|member| member.node != *node || member.ran_at(at));
            match (running.next(), running.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            }
        }
    }
}

/// The pairs of a list `name=value,…`.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(',').filter_map(|one| one.split_once('='))
}

/// A directory without a slash at its end; a name stays as it is.
fn directory_of(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => path,
        trimmed => trimmed,
    }
}

fn newer_of(old: &mut Option<String>, new: &Option<String>) {
    if new.is_some() {
        old.clone_from(new);
    }
}

fn port_of(endpoint: &str) -> Option<&str> {
    let end = endpoint.trim_end_matches('/');
    let port = end.rsplit_once(':').map_or(end, |(_, port)| port);
    let digits = port.split('/').next().unwrap_or(port);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

// === impl Member ===

impl Member {
    fn take(&mut self, observation: &Observation) {
        let wall = observation.envelope.wall;
        self.is_undated |= wall.is_none() && matches!(observation.body, Body::Factor(_));
        if let Some(wall) = wall {
            let (first, last) = self.told.unwrap_or((wall, wall));
            self.told = Some((first.min(wall), last.max(wall)));
        }
        match &observation.body {
            Body::Worker(worker) => {
                newer_of(&mut self.pod, &worker.pod);
                newer_of(&mut self.namespace, &worker.namespace);
                newer_of(&mut self.container, &worker.container);
                newer_of(&mut self.image, &worker.image);
                newer_of(&mut self.image_digest, &worker.image_digest);
                let listed = worker.facts.get(fact::ADAPTERS_LOADED);
                for (name, directory) in listed.into_iter().flat_map(|text| named(text)) {
                    self.place_adapter(name, directory, wall);
                }
                self.pids.extend(worker.pids.iter().cloned());
                self.settings
                    .extend(worker.settings.iter().map(|(name, value)| (name.clone(), value.clone())));
                newer_of(&mut self.engine, &worker.engine);
                newer_of(&mut self.version, &worker.engine_version);
                if worker.role.is_some() {
                    self.role.clone_from(&worker.role);
                }
                self.engine_ids.extend(worker.engine_ids.iter().cloned());
                self.watched_by.extend(worker.watched_by.iter().cloned());
                for (name, value) in &worker.facts {
                    let origin = worker.fact_origins.get(name);
                    let is_default = origin.is_some_and(|origin| origin.starts_with("default"));
                    let held_by_better = self.facts.contains_key(name)
                        && !self.fact_origins.get(name).is_some_and(|origin| origin.starts_with("default"));
                    if is_default && held_by_better {
                        continue;
                    }
                    self.facts.insert(name.clone(), value.clone());
                    match origin {
                        Some(origin) => self.fact_origins.insert(name.clone(), origin.clone()),
                        None => self.fact_origins.remove(name),
                    };
                }
            }
            Body::WorkerGone(gone) => {
                self.gone = self.gone.max(wall);
                self.exit_signal = gone.exit_signal.or(self.exit_signal);
                self.exit_status = gone.exit_status.or(self.exit_status);
            }
            Body::Loss(loss) => {
                let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
                let records = loss.records.and_then(|records| u64::try_from(records).ok()).unwrap_or(1);
                let lost = self.losses.entry((word(&loss.stage), word(&loss.reason))).or_insert(0);
                *lost = lost.saturating_add(records);
            }
            Body::Factor(body) => self.take_factor(body, wall),
            Body::AdminCall(call) => {
                let loaded =
                    call.class == Some(AdminClass::LoraLoad) && call.outcome != Some(Outcome::Failed);
                for (name, directory) in call.names.iter().zip(&call.paths).filter(|_| loaded) {
                    self.place_adapter(name, directory, wall);
                    let loads = self.adapter_loads.entry(directory_of(directory).to_owned()).or_default();
                    loads.extend(wall);
                }
            }
            _ => {}
        }
    }

    fn take_factor(&mut self, body: &kvprov_model::observation::Factor, wall: Option<WallTime>) {
        let Some(name) = &body.factor else { return };
        let state = body.state.clone().unwrap_or(FactorState::Unknown);
        let of = (name.clone(), body.adapter.as_deref().map(|adapter| directory_of(adapter).to_owned()));
        if let Some(reason) = body.reason.as_ref().filter(|_| state == FactorState::Unknown) {
            let told = (wall, reason.clone());
            self.reasons.entry(of).and_modify(|held| *held = held.clone().max(told.clone())).or_insert(told);
        }
        let Some(algorithm) = &body.algorithm else { return };
        let Some(value) = &body.value else {
            // Who reads content says that other content was loaded, which it does not know (yet): the old epoch is over.
            let timeline = match &body.adapter {
                Some(adapter) => self.adapters.entry(directory_of(adapter).to_owned()).or_default(),
                None => self.factors.entry(name.clone()).or_default(),
            };
            if state != FactorState::Full {
                timeline.forget(wall);
            }
            return;
        };
        let factor = Factor {
            algorithm: algorithm.clone(),
            value: value.clone(),
            state,
            layout: body.layout.clone(),
            meaning: body.meaning.clone(),
        };
        let full = factor.state == FactorState::Full;
        if let Some(origin) = &body.origin {
            let adapter = body.adapter.as_deref().map(|adapter| directory_of(adapter).to_owned());
            self.origins.entry((name.clone(), adapter, wall)).or_insert_with(|| origin.clone());
        }
        match &body.adapter {
            Some(adapter) => {
                self.adapters.entry(directory_of(adapter).to_owned()).or_default().set(wall, factor);
            }
            None if full => self.factors.entry(name.clone()).or_default().set(wall, factor),
            None => self.hints.entry(name.clone()).or_default().set(wall, factor),
        }
    }

    /// What arguments say of adapters holds since the start.
    fn place_adapters(&mut self) {
        let placed = self.fact(fact::ADAPTER_DIRECTORIES).map(str::to_owned);
        for (name, directory) in placed.iter().flat_map(|text| named(text)) {
            self.place_adapter(name, directory, None);
        }
    }

    fn place_adapter(&mut self, name: &str, directory: &str, from: Option<WallTime>) {
        // A name of a hub is no directory: where its files are is not known.
        if directory.starts_with('/') {
            let directory = directory_of(directory).to_owned();
            self.directories.entry(name.to_owned()).or_default().set(from, directory);
        } else {
            self.directories.entry(name.to_owned()).or_default().forget(from);
        }
    }

    /// The factor of the adapter of that name over time: as declared by name, else of the files from which it was loaded,
    /// else of the only directory that is called like it.
    fn adapter_timeline(&self, adapter: &str, time: Option<WallTime>) -> Option<&Timeline<Factor>> {
        if let Some(named) = self.adapters.get(adapter) {
            return Some(named);
        }
        if let Some(directories) = self.directories.get(adapter) {
            return self.adapters.get(directories.at(time)?);
        }
        let called_like_it =
            |(key, _): &(&String, _)| key.rsplit_once('/').is_some_and(|(_, last)| last == adapter);
        let mut like_it = self.adapters.iter().filter(called_like_it);
        match (like_it.next(), like_it.next()) {
            (Some((_, timeline)), None) => Some(timeline),
            _ => None,
        }
    }

    /// Whether it ran at a time, as far as is known: where factors are declared without a date it is not known when it began.
    /// What ends with the worker may be dated a moment after its end.
    pub fn ran_at(&self, at: WallTime) -> bool {
        let began = self.is_undated || self.told.is_none_or(|(first, _)| first <= at);
        began && self.gone.is_none_or(|gone| gone.plus(END_SLACK) >= at)
    }

    /// From when it is known to run; `None`: from the beginning, as far as is known.
    pub fn began(&self) -> Option<WallTime> {
        self.told.map(|(first, _)| first).filter(|_| !self.is_undated)
    }

    /// Whether requests for the base model ask for it by this name.
    pub fn serves(&self, name: &str) -> bool {
        let served = self.fact(fact::MODEL_NAME).into_iter().flat_map(|names| names.split([',', ' ']));
        served.chain(self.fact(fact::MODEL_PATH)).any(|served| served == name)
    }

    /// Whether it has, or had, an adapter of this name.
    pub fn has_adapter(&self, name: &str) -> bool {
        self.adapters.contains_key(name) || self.directories.contains_key(name)
    }

    /// Whether anything tells of an adapter that it has or had.
    pub fn has_adapters(&self) -> bool {
        !self.adapters.is_empty()
            || !self.directories.is_empty()
            || self.facts.contains_key(fact::ADAPTERS_RUNNING)
            || self.facts.contains_key(fact::ADAPTERS_LOADED)
    }

    /// A factor of its representation by name ([`kvprov_model::factor::REPRESENTATION`]).
    pub fn representation(&self, name: &str) -> Option<&str> {
        match name {
            "engine" => self.engine.as_deref(),
            "engine_version" => self.version.as_deref(),
            name => self.fact(name),
        }
    }

    /// A fact by its name in `model::fact`.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// A fact with its value and where it was seen, in words.
    pub fn told_fact(&self, name: &str) -> String {
        let value = self.fact(name).unwrap_or("not set");
        let seen = self.fact_origins.get(name).map(|origin| match origin.strip_prefix("setting ") {
            // Variables are told by their names: options have lower-case letters.
            Some(of) if !of.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                format!("variable {of} of the environment")
            }
            _ => origin.clone(),
        });
        seen.map_or_else(|| format!("{name} = {value}"), |seen| format!("{name} = {value} ({seen})"))
    }

    /// A fact that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.fact(name)?.parse().ok()
    }

    /// Whether a fact is `true`.
    pub fn is(&self, name: &str) -> bool {
        self.fact(name) == Some("true")
    }

    /// The factors at a time; those without a date hold from the beginning. An adapter's own factor is there only
    /// when a request uses that adapter: requests for the base model have none.
    pub fn factors_at(&self, time: Option<WallTime>, adapter: Option<&str>) -> Factors {
        let known = |name: &str| self.factors.get(name).and_then(|timeline| timeline.at(time));
        let hints = self.hints.iter().filter(|(name, _)| known(name).is_none());
        let mut at: Factors = self
            .factors
            .iter()
            .chain(hints)
            .filter(|(name, _)| name.as_str() != "adapter")
            .filter_map(|(name, timeline)| Some((name.clone(), timeline.at(time)?.clone())))
            .collect();
        let base = [fact::MODEL_NAME, fact::MODEL_PATH];
        if let Some(adapter) = adapter.filter(|name| base.iter().all(|fact| self.fact(fact) != Some(name))) {
            let named = self.adapter_at(adapter, time);
            let only = self.factors.get("adapter").and_then(|timeline| timeline.at(time));
            if let Some(factor) = named.or(only) {
                at.0.insert("adapter".to_owned(), factor.clone());
            }
        }
        at
    }

    /// The name under which requests reach the only adapter that it serves; `None`: it serves none or several, or the name
    /// is not known.
    pub fn only_adapter(&self) -> Option<&str> {
        let mut names = self.directories.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Every factor as it was last stated.
    pub fn factors(&self) -> Vec<Stated<'_>> {
        let known = |name: &str| self.factors.get(name).and_then(Timeline::last);
        let hints = self.hints.iter().filter(|(name, _)| known(name).is_none());
        let own = self.factors.iter().chain(hints).filter_map(|(name, timeline)| {
            let (since, factor) = timeline.last()?;
            let origin = self.origin(name, None, since);
            Some(Stated { name, adapter: None, since, factor, origin })
        });
        let of_adapters = self.adapters.iter().filter_map(|(adapter, timeline)| {
            let (since, factor) = timeline.last()?;
            let origin = self.origin("adapter", Some(adapter), since);
            Some(Stated { name: "adapter", adapter: Some(adapter), since, factor, origin })
        });
        own.chain(of_adapters).collect()
    }

    /// Factors of which nothing is known, with the reason: name, adapter, since when, why. What was stated for the same time
    /// or later takes the place of a reason.
    pub fn unknown(&self) -> Vec<(&str, Option<&str>, Option<WallTime>, &str)> {
        let stated = self.factors();
        let is_known = |name: &str, adapter: Option<&str>, since: Option<WallTime>| {
            let mut of_it = stated.iter().filter(|one| one.name == name && one.adapter == adapter);
            of_it.any(|one| one.factor.state == FactorState::Full && one.since >= since)
        };
        let reasons = self.reasons.iter().filter_map(|((name, adapter), (since, reason))| {
            let adapter = adapter.as_deref();
            (!is_known(name, adapter, *since)).then_some((name.as_str(), adapter, *since, reason.as_str()))
        });
        reasons.collect()
    }

    fn origin(&self, factor: &str, adapter: Option<&str>, since: Option<WallTime>) -> Option<&str> {
        let place = (factor.to_owned(), adapter.map(str::to_owned), since);
        self.origins.get(&place).map(String::as_str)
    }

    /// The digest of an adapter, by name, at a time.
    pub fn adapter_at(&self, adapter: &str, time: Option<WallTime>) -> Option<&Factor> {
        self.adapter_timeline(adapter, time)?.at(time)
    }

    /// The digest of an adapter that was stated up to a time.
    pub fn adapter_stated_at(&self, adapter: &str, time: WallTime) -> Option<&Factor> {
        self.adapter_timeline(adapter, Some(time))?.stated_at(time)
    }

    /// Times at which a semantic factor changed while the worker lived, with the factor's name.
    pub fn changes(&self) -> Vec<(WallTime, String)> {
        self.of_timelines(Timeline::changes)
    }

    /// Times at which an epoch of the worker began behind another, with the name of the factor that ended the one before.
    pub fn epochs(&self) -> Vec<(WallTime, String)> {
        let mut epochs = self.of_timelines(Timeline::epochs);
        // What was loaded first was overwritten before it could be read: what it was is not known, that it is over is.
        let again = self.adapters.iter().filter_map(|(directory, timeline)| {
            let known = timeline.known_from()?;
            let loads = self.adapter_loads.get(directory)?;
            // An engine's clock has whole seconds, and its line follows the load.
            let about = known.plus(-SECOND)..known.plus(LOAD);
            let twice = loads.range(..=about.start).next().is_some()
                && loads.iter().any(|load| about.start < *load && *load < about.end);
            twice.then(|| (known, "adapter".to_owned()))
        });
        epochs.extend(again.collect::<Vec<_>>());
        epochs.sort();
        epochs.dedup();
        epochs
    }

    /// Times that each semantic factor tells, in order, with the factor's name.
    fn of_timelines(&self, times: impl Fn(&Timeline<Factor>) -> Vec<WallTime>) -> Vec<(WallTime, String)> {
        let mut told = Vec::new();
        for (name, timeline) in &self.factors {
            told.extend(times(timeline).into_iter().map(|time| (time, name.clone())));
        }
        for timeline in self.adapters.values() {
            told.extend(times(timeline).into_iter().map(|time| (time, "adapter".to_owned())));
        }
        told.sort();
        told
    }

    /// The revision id at a time.
    pub fn revision_at(&self, time: Option<WallTime>, adapter: Option<&str>) -> Option<String> {
        self.factors_at(time, adapter).revision_id()
    }
}
