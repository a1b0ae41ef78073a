//! Logs that the configuration names for a process which does not have them open as its output.

use super::options::LogFile;
use kvprov_model::id::WorkerId;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Logs named with words of the arguments of the process that writes them.
#[derive(Debug, Default)]
pub(super) struct NamedLogs {
    files: Vec<LogFile>,
    /// Which of them are followed for whom.
    told: BTreeSet<(WorkerId, usize)>,
    /// Those whose want of a process was reported.
    missed: BTreeSet<usize>,
}

/// Something in the configuration that does not fit the processes of this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misfit {
    /// No worker's process has these arguments.
    #[error("no process of a worker here has the arguments {of:?}, so that nobody reads {path}; `of` takes whole arguments", path = .path.display())]
    Nobody {
        /// The log.
        path: PathBuf,
        /// The words that it names.
        of: String,
    },
    /// Several have them, and each is said to have written it.
    #[error("{path} is read for {first} and for {other}, for both have the arguments {of:?}; name more of them", path = .path.display())]
    Several {
        /// The log.
        path: PathBuf,
        /// The words that it names.
        of: String,
        /// One who may write it.
        first: WorkerId,
        /// Another.
        other: WorkerId,
    },
}

// === impl NamedLogs ===

impl NamedLogs {
    /// Of all configured logs those that name a process.
    pub(super) fn of(files: &[LogFile]) -> Self {
        let named = files.iter().filter(|file| file.of.is_some());
        Self { files: named.cloned().collect(), ..Self::default() }
    }

    /// The logs of a worker that were not given to it before, and which of them name another worker too; `arguments` are
    /// those of one of its processes, a blank between any two.
    pub(super) fn of_worker(
        &mut self,
        worker: &WorkerId,
        pids: impl Iterator<Item = u32>,
        arguments: impl Fn(u32) -> Option<String>,
    ) -> (Vec<LogFile>, Vec<Misfit>) {
        let (mut found, mut misfits) = (Vec::new(), Vec::new());
        if self.files.is_empty() {
            return (found, misfits);
        }
        let all: Vec<String> = pids.filter_map(arguments).collect();
        for (index, file) in self.files.iter().enumerate() {
            let Some(of) = &file.of else { continue };
            let told = (worker.clone(), index);
            if self.told.contains(&told) || !all.iter().any(|arguments| holds(arguments, of)) {
                continue;
            }
            // Read for both: one that starts anew may be seen before its forerunner is seen to end.
            if let Some((first, _)) = self.told.iter().find(|(_, other)| *other == index) {
                misfits.push(Misfit::Several {
                    path: file.path.clone(),
                    of: of.clone(),
                    first: first.clone(),
                    other: worker.clone(),
                });
            }
            found.push(file.clone());
            self.told.insert(told);
        }
        (found, misfits)
    }

    /// Logs that name no process of any worker; each is told once.
    pub(super) fn of_nobody(&mut self) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            let is_told = self.told.iter().any(|(_, told)| *told == index);
            if let Some(of) = file.of.clone().filter(|_| !is_told && self.missed.insert(index)) {
                misfits.push(Misfit::Nobody { path: file.path.clone(), of });
            }
        }
        misfits
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
            |worker: &WorkerId, pids: &[u32]| logs.of_worker(worker, pids.iter().copied(), arguments).0;
        assert_eq!(of(&p, &[7]), [file("/p.log", Some("--port 8001"))]);
        assert_eq!(of(&d, &[9, 8]), [file("/d.log", Some("--port 8002"))]);
        assert_eq!(of(&p, &[7]), []);
        logs.leave(&p);
        assert_eq!(logs.of_worker(&p, [7].into_iter(), arguments).0.len(), 1);
    }

    #[test]
    fn a_log_that_two_workers_may_write_is_read_for_both_which_are_named_once() {
        let mut logs = NamedLogs::of(&[file("/p.log", Some("/models/a"))]);
        let (p, d) = (WorkerId::from("p"), WorkerId::from("d"));
        assert_eq!(logs.of_worker(&p, [7].into_iter(), arguments).0.len(), 1);
        let (found, misfits) = logs.of_worker(&d, [8].into_iter(), arguments);
        assert_eq!(found.len(), 1);
        let told: Vec<String> = misfits.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains("/p.log is read for p and for d"), "{told:?}");
        assert_eq!(logs.of_worker(&d, [8].into_iter(), arguments), (Vec::new(), Vec::new()));
        assert_eq!(logs.of_nobody(), []);
    }

    #[test]
    fn a_log_that_names_nobody_is_told_once() {
        let mut logs =
            NamedLogs::of(&[file("/p.log", Some("--port 800")), file("/d.log", Some("--port 8002"))]);
        logs.of_worker(&WorkerId::from("d"), [8].into_iter(), arguments);
        let told: Vec<String> = logs.of_nobody().iter().map(ToString::to_string).collect();
        assert!(
            told.len() == 1 && told[0].contains("\"--port 800\", so that nobody reads /p.log"),
            "{told:?}"
        );
        assert_eq!(logs.of_nobody(), []);
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
        assert_eq!(logs.of_worker(&WorkerId::from("p"), [7, 8, 9].into_iter(), arguments).0, []);
    }
}
