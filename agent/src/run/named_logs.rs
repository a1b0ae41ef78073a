//! Logs that the configuration names for a process which does not have them open as its output.

use super::options::LogFile;
use kvprov_model::id::WorkerId;
use std::collections::BTreeSet;

/// Logs named with words of the arguments of the process that writes them.
#[derive(Debug, Default)]
pub(super) struct NamedLogs {
    files: Vec<LogFile>,
    /// Which of them are followed for whom.
    told: BTreeSet<(WorkerId, usize)>,
}

// === impl NamedLogs ===

impl NamedLogs {
    /// Of all configured logs those that name a process.
    pub(super) fn of(files: &[LogFile]) -> Self {
        let named = files.iter().filter(|file| file.of.is_some());
        Self { files: named.cloned().collect(), told: BTreeSet::new() }
    }

    /// The logs of a worker that were not given before; `arguments` are those of one of its processes, a blank between
    /// any two.
    pub(super) fn of_worker(
        &mut self,
        worker: &WorkerId,
        pids: impl Iterator<Item = u32>,
        arguments: impl Fn(u32) -> Option<String>,
    ) -> Vec<LogFile> {
        let open: Vec<usize> =
            (0..self.files.len()).filter(|file| !self.told.contains(&(worker.clone(), *file))).collect();
        if open.is_empty() {
            return Vec::new();
        }
        let all: Vec<String> = pids.filter_map(arguments).collect();
        let names = |file: &LogFile| {
            file.of.as_deref().is_some_and(|words| all.iter().any(|arguments| holds(arguments, words)))
        };
        let found: Vec<usize> = open.into_iter().filter(|file| names(&self.files[*file])).collect();
        self.told.extend(found.iter().map(|file| (worker.clone(), *file)));
        found.into_iter().map(|file| self.files[file].clone()).collect()
    }

    /// A worker is gone.
    pub(super) fn leave(&mut self, worker: &WorkerId) {
        self.told.retain(|(of, _)| of != worker);
    }
}

/// Whether words stand among arguments as whole ones: `--port 800` is not in `--port 8001`.
fn holds(arguments: &str, words: &str) -> bool {
    let words = words.trim();
    let is_whole = |at: usize| {
        let (before, behind) = (&arguments[..at], &arguments[at + words.len()..]);
        (before.is_empty() || before.ends_with(' ')) && (behind.is_empty() || behind.starts_with(' '))
    };
    !words.is_empty() && arguments.match_indices(words).any(|(at, _)| is_whole(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, of: Option<&str>) -> LogFile {
        LogFile { path: path.into(), engine: None, of: of.map(str::to_owned) }
    }

    fn arguments(pid: u32) -> Option<String> {
        match pid {
            7 => Some("vllm serve /models/a --port 8001".to_owned()),
            8 => Some("vllm serve /models/a --port 8002".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn a_log_goes_to_the_worker_whose_arguments_it_names_and_once() {
        let mut logs =
            NamedLogs::of(&[file("/p.log", Some("--port 8001")), file("/d.log", Some("--port 8002"))]);
        let (p, d) = (WorkerId::from("p"), WorkerId::from("d"));
        let mut of =
            |worker: &WorkerId, pids: &[u32]| logs.of_worker(worker, pids.iter().copied(), arguments);
        assert_eq!(of(&p, &[7]), [file("/p.log", Some("--port 8001"))]);
        assert_eq!(of(&d, &[9, 8]), [file("/d.log", Some("--port 8002"))]);
        assert_eq!(of(&p, &[7]), []);
        logs.leave(&p);
        assert_eq!(logs.of_worker(&p, [7].into_iter(), arguments).len(), 1);
    }

    #[test]
    fn only_whole_arguments_name_a_process() {
        assert!(holds("vllm serve /models/a --port 8001", "/models/a"));
        assert!(holds("vllm serve /models/a --port 8001", " --port 8001 "));
        for other in ["--port 800", "/models", "", " ", "llm serve"] {
            assert!(!holds("vllm serve /models/a --port 8001", other), "{other:?}");
        }
    }

    #[test]
    fn a_log_that_names_nobody_or_somebody_else_is_no_workers() {
        let mut logs = NamedLogs::of(&[file("/p.log", Some("--port 9000")), file("/own.log", None)]);
        assert_eq!(logs.of_worker(&WorkerId::from("p"), [7, 8, 9].into_iter(), arguments), []);
    }
}
