//! Keeps the ledger in line with the file in which operators declare what names should mean.
//!
//! The file is looked at every two seconds. What is right goes to the ledger as a list that takes the place of the one before
//! ([`crate::view::expected`] says how); the first list holds from the beginning. What is wrong is told with its line, and the last list that was
//! right stands: also over a restart, since the ledger holds it. What was told last is kept beside the ledger, so that a
//! restart declares nothing anew, and a file that is no longer named is taken back.

use crate::intake::{Batch, Intake, Queue, Refusal};
use crate::run::Board;
use kvprov_model::clock::WallTime;
use kvprov_model::expected;
use kvprov_model::id::hex;
use kvprov_model::observation::Observation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(2);
/// Largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// How long to wait before a list that the ledger did not take is offered again.
const AGAIN: Duration = Duration::from_millis(500);

/// A list as it was told last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    /// The name of its file.
    stream: String,
    /// SHA-256 of the file's content.
    digest: String,
    /// From when it holds, in nanoseconds since the epoch.
    since: Option<i64>,
}

/// The file, and what was told of it.
#[derive(Debug)]
pub struct Declarations {
    file: Option<PathBuf>,
    /// Where [`Told`] is kept; `None`: nowhere.
    memory: Option<PathBuf>,
    told: Option<Told>,
    /// What the ledger still has to hear after a start.
    is_fresh: bool,
    failing: Option<String>,
}

/// What a look gave.
#[derive(Debug, Default, PartialEq)]
struct Look {
    /// What the ledger has to hear.
    observations: Vec<Observation>,
    /// What to remember once it has.
    told: Option<Told>,
}

// === impl Declarations ===

impl Declarations {
    /// The declarations of a file; without one, those that were told before are taken back. `memory`: where it is remembered what
    /// was told.
    pub fn new(file: Option<PathBuf>, memory: Option<PathBuf>) -> Self {
        let told = memory.as_deref().and_then(|path| std::fs::read(path).ok());
        let told = told.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self { file, memory, told, is_fresh: true, failing: None }
    }

    /// Looks at the file again and again; never returns while there is one.
    pub async fn keep(mut self, queue: Queue, board: Arc<Board>) {
        loop {
            let before = self.failing.clone();
            if let Some(look) = self.look(now()) {
                while let Err(refusal) = queue.offer(Batch { observations: look.observations.clone() }).await
                {
                    if refusal == Refusal::Stopping {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
                self.remember(look.told);
            }
            if before != self.failing {
                if let Some(reason) = &self.failing {
                    tracing::error!("{reason}; what was declared before stands");
                }
                board.declare(self.failing.clone());
            }
            if self.file.is_none() {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// What the ledger has to hear; `None`: nothing new.
    fn look(&mut self, now: WallTime) -> Option<Look> {
        let Some(file) = &self.file else {
            let told = self.told.as_ref()?;
            return Some(Look {
                observations: expected::observations(&[], &told.stream, Some(now)),
                told: None,
            });
        };
        let stream = name_of(file);
        let text = match read(file) {
            Ok(text) => text,
            Err(error) => {
                let file = file.display();
                self.failing = Some(format!(
                    "the expected revisions in {file} cannot be read: {error}; make it a readable file of less than 4 MiB"
                ));
                return None;
            }
        };
        let digest = hex(&Sha256::digest(text.as_bytes()));
        let is_same = |told: &&Told| told.digest == digest && told.stream == stream;
        let same = self.told.as_ref().filter(is_same).cloned();
        if same.is_some() && !self.is_fresh {
            self.failing = None;
            return None;
        }
        let list = match expected::read_file(&text) {
            Ok(list) => list,
            Err(flaws) => {
                let told = flaws
                    .iter()
                    .take(5)
                    .map(|flaw| format!("{}:{}: {}; {}", file.display(), flaw.line, flaw.what, flaw.advice));
                self.failing = Some(told.collect::<Vec<_>>().join("\n"));
                return None;
            }
        };
        self.failing = None;
        self.is_fresh = false;
        let since = self.told.as_ref().map(|_| now.0);
        let told = same.unwrap_or_else(|| Told { stream: stream.clone(), digest, since });
        let mut observations = expected::observations(&list, &stream, told.since.map(WallTime));
        if let Some(other) = self.told.as_ref().filter(|before| before.stream != stream) {
            observations.extend(expected::observations(&[], &other.stream, Some(now)));
        }
        Some(Look { observations, told: Some(told) })
    }

    fn remember(&mut self, told: Option<Told>) {
        self.told = told;
        let Some(memory) = &self.memory else { return };
        let written = match &self.told {
            Some(told) => write(memory, told),
            None => std::fs::remove_file(memory),
        };
        if let Err(error) = written {
            let path = memory.display();
            tracing::warn!(%path, %error, "what was declared could not be remembered; a restart declares it anew");
        }
    }
}

/// The file's name, as evidence names it.
fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

fn read(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text"))
}

/// Whole or not at all.
fn write(memory: &Path, told: &Told) -> io::Result<()> {
    let new = memory.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(told)?)?;
    std::fs::rename(&new, memory)
}

/// The collector's clock.
fn now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::observation::{Body, Expected};

    const RIGHT: &str = "[[expected]]\nalias = \"m\"\nrevisions = [\"rev:0123456789ab\"]\n";
    const OTHER: &str = "[[expected]]\nalias = \"m\"\nrevisions = [\"rev:ba9876543210\"]\n";

    /// A data directory with a file of declarations.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new(text: &str) -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            place.write(text);
            place
        }

        fn write(&self, text: &str) {
            std::fs::write(self.file(), text).unwrap();
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("revisions.toml")
        }

        fn start(&self, with_file: bool) -> Declarations {
            Declarations::new(with_file.then(|| self.file()), Some(self.0.path().join("expected.json")))
        }
    }

    /// What the ledger hears at a time.
    fn heard(declarations: &mut Declarations, now: i64) -> Vec<Expected> {
        let Some(look) = declarations.look(WallTime(now)) else { return Vec::new() };
        declarations.remember(look.told);
        let bodies = look.observations.into_iter().map(|observation| observation.body);
        bodies.filter_map(|body| if let Body::Expected(body) = body { Some(body) } else { None }).collect()
    }

    #[test]
    fn the_first_list_holds_from_the_beginning_and_the_next_from_its_time() {
        let place = Place::new(RIGHT);
        let mut declarations = place.start(true);
        assert_eq!(heard(&mut declarations, 5)[0].list_wall_ns, None);
        assert!(heard(&mut declarations, 6).is_empty(), "nothing new");
        place.write(OTHER);
        assert_eq!(heard(&mut declarations, 7)[0].list_wall_ns, Some(7));
    }

    #[test]
    fn a_restart_tells_the_same_again() {
        let place = Place::new(RIGHT);
        heard(&mut place.start(true), 5);
        place.write(OTHER);
        let told = heard(&mut place.start(true), 7);
        assert_eq!(told[0].list_wall_ns, Some(7));
        assert_eq!(heard(&mut place.start(true), 9), told);
    }

    #[test]
    fn a_flaw_is_told_with_file_and_line_and_the_last_right_list_stands() {
        let place = Place::new(RIGHT);
        let mut declarations = place.start(true);
        heard(&mut declarations, 5);
        place.write("[[expected]]\nalias = \"m\"\nrevisions = [\"v2\"]\n");
        assert!(heard(&mut declarations, 6).is_empty());
        let reason = declarations.failing.clone().unwrap();
        assert!(
            reason.contains("revisions.toml:3: ") && reason.contains("\"v2\" is no revision"),
            "{reason}"
        );
        place.write(RIGHT);
        assert!(heard(&mut declarations, 7).is_empty() && declarations.failing.is_none());
    }

    #[test]
    fn a_file_that_is_not_there_is_told_and_takes_nothing_back() {
        let place = Place::new(RIGHT);
        let mut declarations = place.start(true);
        heard(&mut declarations, 5);
        std::fs::remove_file(place.file()).unwrap();
        assert!(heard(&mut declarations, 6).is_empty());
        assert!(declarations.failing.clone().unwrap().contains("cannot be read"));
    }

    #[test]
    fn a_file_that_is_no_longer_named_is_taken_back_once() {
        let place = Place::new(RIGHT);
        heard(&mut place.start(true), 5);
        let taken_back = heard(&mut place.start(false), 8);
        assert_eq!(taken_back, [Expected { list_wall_ns: Some(8), ..Expected::default() }]);
        assert!(heard(&mut place.start(false), 9).is_empty());
    }

    #[test]
    fn a_file_that_is_too_large_or_no_text_is_refused() {
        let place = Place::new("");
        for bytes in [vec![b'#'; LARGEST as usize + 1], vec![0xff, 0xfe]] {
            std::fs::write(place.file(), bytes).unwrap();
            let mut declarations = place.start(true);
            assert!(heard(&mut declarations, 5).is_empty() && declarations.failing.is_some());
        }
    }
}
