//! The key that makes content comparable within a fleet and meaningless outside of it.
//!
//! Nodes whose content shall be compared need one key, so an operator gives it to all of them as a file. Without one a node
//! makes its own at the first start and keeps it; what it says is then comparable with itself alone, which the id of the
//! key tells. The key leaves the node in no form but that id.

use kvprov_model::content::FleetKey;
use kvprov_model::id::hex;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a key that is made here.
const OWN: usize = 32;
/// Shortest and longest key of a file, in bytes without blanks around it.
const SHORTEST: usize = 16;
const LONGEST: usize = 4096;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("the key of content hashes {path}: {error}; check the path and that the agent's user may read it", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The file holds no key.
    #[error("the key of content hashes {path} has {length} bytes; give it {SHORTEST} to {LONGEST} random ones", path = path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes without blanks around them.
        length: usize,
    },
}

/// The key of a file that an operator keeps.
///
/// # Errors
/// When it cannot be read, or is too short to be a secret.
pub fn from_file(path: &Path) -> Result<FleetKey, KeyError> {
    let failed = |error| KeyError::File { path: path.to_owned(), error };
    let mut secret = Vec::with_capacity(LONGEST + 1);
    File::open(path)
        .and_then(|file| file.take(LONGEST as u64 + 1).read_to_end(&mut secret))
        .map_err(failed)?;
    let trimmed = secret.trim_ascii();
    let length = trimmed.len();
    let key = (SHORTEST..=LONGEST).contains(&length).then(|| FleetKey::from_secret(trimmed));
    wipe(&mut secret);
    key.ok_or_else(|| KeyError::Length { path: path.to_owned(), length })
}

/// The node's own key in its data directory, made where there is none. Only the agent's user may read it.
///
/// # Errors
/// When it can neither be read nor made.
pub fn own(path: &Path) -> Result<FleetKey, KeyError> {
    match from_file(path) {
        Err(KeyError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            make(path).map_err(|error| KeyError::File { path: path.to_owned(), error })?;
            from_file(path)
        }
        found => found,
    }
}

/// Makes a key under its name as a whole, or not at all.
fn make(path: &Path) -> io::Result<()> {
    let mut random = [0; OWN];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let mut text = hex(&random).into_bytes();
    wipe(&mut random);
    let new = path.with_extension("new");
    // Left behind by a start that was killed in between.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    wipe(&mut text);
    written?;
    std::fs::rename(&new, path)
}

fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Keeps the writes above, which nothing reads.
    std::hint::black_box(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_node_makes_its_key_once_and_for_its_own_eyes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("content.key");
        let first = own(&path).unwrap();
        assert_eq!(own(&path).unwrap().id(), first.id());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let other = own(&folder.path().join("other.key")).unwrap();
        assert_ne!(other.id(), first.id());
    }

    #[test]
    fn a_key_of_an_operator_is_the_same_with_and_without_a_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "0123456789abcdef").unwrap();
        std::fs::write(&b, "0123456789abcdef\n").unwrap();
        assert_eq!(from_file(&a).unwrap().id(), from_file(&b).unwrap().id());
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in [String::new(), "short\n".to_owned(), "x".repeat(LONGEST + 1)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(from_file(&path), Err(KeyError::Length { .. })));
        }
        assert!(matches!(from_file(&folder.path().join("none")), Err(KeyError::File { .. })));
    }
}
