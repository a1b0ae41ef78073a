//! A close look at a worker: settings, version, role, container, outputs.
//!
//! Done when a worker appears and rarely afterwards. Invariant: of arguments and environment only what the packs keep
//! outlives this module.

use super::container::{Container, path_of};
use super::system::{Output, ProcessKey, Processes, texts};
use super::version::{self, Traces};
use kvprov_model::observation::Role;
use kvprov_packs::process::{Closer, Pattern};
use kvprov_packs::{Packs, ProcessSettings, ProcessSignature, SettingsSeen, Version};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Largest file of settings that is read, in bytes.
const MAX_FILE: usize = 256 << 10;
/// Processes that are asked for the environment of their engine.
const MAX_ASKED: usize = 32;
/// Variables of the environment that are looked at.
const MAX_VARIABLES: usize = 8192;

/// What a close look gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Look {
    pub engine_version: Option<String>,
    pub role: Option<Role>,
    pub settings: BTreeMap<String, String>,
    pub facts: BTreeMap<String, String>,
    pub fact_origins: BTreeMap<String, String>,
    pub cgroup: String,
    pub container: Option<Container>,
    pub pod: Option<String>,
    pub unread: BTreeMap<&'static str, io::ErrorKind>,
}

/// Looks at a worker through its leader. `others`: living processes of the tree, for what the leader no longer shows.
/// `started_as`: whether the leader's arguments are those of `signature`; if not, they say nothing of the engine.
pub(super) fn look(
    system: &dyn Processes,
    packs: &Packs,
    signature: &ProcessSignature,
    leader: ProcessKey,
    started_as: bool,
    others: &[ProcessKey],
) -> Look {
    let mut look = Look::default();
    let all = || std::iter::once(leader).chain(others.iter().copied());
    let arguments = match system.arguments(leader.pid) {
        Ok(bytes) => texts(&bytes),
        Err(error) => {
            look.unread.insert("arguments", error.kind());
            Vec::new()
        }
    };
    let own: &[String] = if started_as { &arguments } else { &[] };
    // A title that grew over the environment leaves nothing of it: children hold a copy of what their parent got.
    let mut problem = io::ErrorKind::InvalidData;
    let environment = all().take(MAX_ASKED).find_map(|process| match system.environment(process.pid) {
        Ok(bytes) => Some(variables(&bytes)).filter(|variables| !variables.is_empty()),
        Err(error) => {
            problem = error.kind();
            None
        }
    });
    if environment.is_none() {
        look.unread.insert("environment", problem);
    }
    let seen = SettingsSeen { arguments: started_as && !own.is_empty(), environment: environment.is_some() };
    let environment = environment.unwrap_or_default();
    let mut settings = signature.settings(packs.processes(), own, &environment);
    add_files(system, packs, signature, leader.pid, &mut settings, &mut look);

    let traces = |pid| Traces { pid, arguments: &arguments, environment: &environment };
    look.engine_version =
        all().take(3).find_map(|process| version::find(system, &traces(process.pid), &signature.packages));
    let version = look.engine_version.as_deref().and_then(Version::parse);
    let mut resolved =
        packs.facts_of_seen(Some(&signature.engine), version.as_ref(), &settings.settings, seen);
    // Without arguments nothing tells the role but the kind of process.
    look.role = seen.arguments.then(|| signature.role(&resolved)).flatten();
    settings.place(&mut resolved);
    look.facts = resolved.facts;
    look.fact_origins = resolved.origins;
    look.settings = settings.settings;

    match all().find_map(|process| system.cgroup(process.pid).ok()) {
        Some(cgroup) => path_of(&cgroup).clone_into(&mut look.cgroup),
        None => drop(look.unread.insert("cgroup", io::ErrorKind::PermissionDenied)),
    }
    look.container = Container::of(&look.cgroup);
    let pod_uid = look.container.as_ref().and_then(|container| container.pod_uid.clone());
    look.pod = pod_uid.map(|uid| {
        let name = ["POD_NAME", "HOSTNAME"].iter().find_map(|name| {
            let found = environment.iter().find(|(variable, value)| variable == name && !value.is_empty());
            found.map(|(_, value)| value.clone())
        });
        name.unwrap_or(uid)
    });
    look
}

/// Descriptors 1 and 2, and the number in the innermost name space where that is another.
pub(super) fn output_of(system: &dyn Processes, pid: u32) -> [Output; 2] {
    [system.output(pid, 1), system.output(pid, 2)]
}

/// The number in the innermost name space, where that is another.
pub(super) fn inner_pid(system: &dyn Processes, pid: u32) -> Option<u32> {
    let pids = system.namespace_pids(pid).ok()?;
    pids.last().copied().filter(|inner| pids.len() > 1 && *inner != pid)
}

fn add_files(
    system: &dyn Processes,
    packs: &Packs,
    signature: &ProcessSignature,
    pid: u32,
    settings: &mut ProcessSettings,
    look: &mut Look,
) {
    for file in std::mem::take(&mut settings.files) {
        let path = if file.starts_with('/') {
            Ok(file.into())
        } else {
            system.directory(pid).map(|directory| directory.join(&file))
        };
        match path.and_then(|path: std::path::PathBuf| system.read(pid, Path::new(&path), MAX_FILE)) {
            Ok(bytes) => {
                signature.add_file(packs.processes(), &String::from_utf8_lossy(&bytes), settings);
            }
            Err(error) => drop(look.unread.insert("settings file", error.kind())),
        }
    }
}

/// `NAME=value` texts. What has no such form is no environment.
fn variables(bytes: &[u8]) -> Vec<(String, String)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let pairs = texts(bytes).into_iter().take(MAX_VARIABLES).filter_map(|text| {
        let (name, value) = text.split_once('=')?;
        is_name(name).then(|| (name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Environment and mapped files of one process, read when first asked for.
pub(super) struct Closely<'a> {
    system: &'a dyn Processes,
    pid: u32,
    names: Option<Vec<String>>,
    mapped: Option<Vec<String>>,
    /// Whether anything was asked: the answer may be another later.
    pub was_asked: bool,
}

// === impl Closely ===

impl<'a> Closely<'a> {
    pub(super) fn new(system: &'a dyn Processes, pid: u32) -> Self {
        Self { system, pid, names: None, mapped: None, was_asked: false }
    }
}

impl Closer for Closely<'_> {
    fn has_variable(&mut self, name: &Pattern) -> bool {
        self.was_asked = true;
        let Self { system, pid, names, .. } = self;
        let names = names.get_or_insert_with(|| {
            let bytes = system.environment(*pid).unwrap_or_default();
            variables(&bytes).into_iter().map(|(name, _)| name).collect()
        });
        names.iter().any(|known| name.matches(known))
    }

    fn has_mapped(&mut self, path: &Pattern) -> bool {
        self.was_asked = true;
        let Self { system, pid, mapped, .. } = self;
        let mapped = mapped.get_or_insert_with(|| system.mapped_files(*pid).unwrap_or_default());
        mapped.iter().any(|known| path.matches(known))
    }
}
