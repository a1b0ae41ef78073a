//! The version of an engine from the metadata of its package beside the interpreter.
//!
//! Directories of packages are guessed from the command line, the environment, the executable and, last since they cost
//! most, the mapped files. A name of an entry tells: `NAME-VERSION.dist-info`. Nothing is opened.

use super::system::Processes;
use kvprov_packs::Version;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directories that are listed at most.
const MAX_DIRECTORIES: usize = 32;
/// How folders of packages are called.
const FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];

/// What tells where packages are.
#[derive(Debug)]
pub(super) struct Traces<'a> {
    pub pid: u32,
    pub arguments: &'a [String],
    pub environment: &'a [(String, String)],
}

/// The version of the first of `packages` that is found.
pub(super) fn find(system: &dyn Processes, traces: &Traces<'_>, packages: &[String]) -> Option<String> {
    if packages.is_empty() {
        return None;
    }
    let mut search = Search { system, pid: traces.pid, packages, looked: BTreeSet::new() };
    let value_of = |name: &str| {
        let found = traces.environment.iter().find(|(variable, _)| variable == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    };
    let given = value_of("PYTHONPATH").unwrap_or_default().split(':').filter(|path| path.starts_with('/'));
    if let Some(version) = given.map(Path::new).find_map(|path| search.folder(path)) {
        return Some(version);
    }
    // A program or interpreter in PREFIX/bin has its packages below PREFIX/lib.
    let in_bin = traces.arguments.iter().take(4).filter_map(|path| prefix_of(Path::new(path)));
    let executable = system.executable(traces.pid).ok();
    let prefixes = in_bin
        .chain(value_of("VIRTUAL_ENV").map(PathBuf::from))
        .chain(executable.as_deref().and_then(prefix_of));
    let prefixes: Vec<PathBuf> = prefixes.collect();
    if let Some(version) = prefixes.iter().find_map(|prefix| search.prefix(prefix)) {
        return Some(version);
    }
    let mapped = system.mapped_files(traces.pid).ok()?;
    let folders: BTreeSet<&str> = mapped.iter().filter_map(|path| package_folder(path)).collect();
    folders.into_iter().find_map(|folder| search.folder(Path::new(folder)))
}

struct Search<'a> {
    system: &'a dyn Processes,
    pid: u32,
    packages: &'a [String],
    looked: BTreeSet<PathBuf>,
}

// === impl Search ===

impl Search<'_> {
    /// All folders of packages below `PREFIX/lib`.
    fn prefix(&mut self, prefix: &Path) -> Option<String> {
        for library in ["lib", "lib64"] {
            let library = prefix.join(library);
            let Ok(names) = self.system.list(self.pid, &library) else { continue };
            for name in names.iter().filter(|name| name.starts_with("python")) {
                for folder in FOLDERS {
                    if let Some(version) = self.folder(&library.join(name).join(folder)) {
                        return Some(version);
                    }
                }
            }
        }
        None
    }

    fn folder(&mut self, folder: &Path) -> Option<String> {
        if self.looked.len() >= MAX_DIRECTORIES || !self.looked.insert(folder.to_owned()) {
            return None;
        }
        let names = self.system.list(self.pid, folder).ok()?;
        self.packages.iter().find_map(|package| names.iter().find_map(|name| version_in(name, package)))
    }
}

/// `PREFIX` of `PREFIX/bin/x`.
fn prefix_of(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| folder.is_absolute() && folder.ends_with("bin"))?;
    folder.parent().map(Path::to_path_buf)
}

/// The folder of packages that a path lies in.
fn package_folder(path: &str) -> Option<&str> {
    FOLDERS.iter().find_map(|folder| {
        let at = path.find(&format!("/{folder}/"))?;
        path.get(..at + 1 + folder.len())
    })
}

/// The version in `NAME-VERSION.dist-info`.
fn version_in(name: &str, package: &str) -> Option<String> {
    let body = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info"))?;
    let (found, version) = body.split_once('-')?;
    let normal = |name: &str| name.to_ascii_lowercase().replace(['-', '.'], "_");
    (normal(found) == normal(package) && Version::parse(version).is_some()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_name_of_the_metadata() {
        assert_eq!(version_in("eng-0.32.0.dist-info", "eng").as_deref(), Some("0.32.0"));
        assert_eq!(version_in("Eng_X-0.3.13.post1.dist-info", "eng_x").as_deref(), Some("0.3.13.post1"));
        for other in ["eng_flash-1.0.dist-info", "eng", "eng-0.1", "eng-soon.dist-info", "engine-1.dist-info"]
        {
            assert_eq!(version_in(other, "eng"), None, "{other}");
        }
    }

    #[test]
    fn folders_are_found_in_paths() {
        assert_eq!(
            package_folder("/v/lib/python3.11/site-packages/a/b.so"),
            Some("/v/lib/python3.11/site-packages")
        );
        assert_eq!(package_folder("/usr/lib/libc.so.6"), None);
        assert_eq!(prefix_of(Path::new("/v/bin/e")), Some(PathBuf::from("/v")));
        assert_eq!(prefix_of(Path::new("bin/e")), None);
    }
}
