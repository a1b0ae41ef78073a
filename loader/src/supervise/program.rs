//! The own program, to start it again.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What leads to the own program whatever happened to its file.
const SELF: &str = "/proc/self/exe";

/// A command that starts it.
pub(super) fn own() -> std::io::Result<Command> {
    let mut command = Command::new(path()?);
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    Ok(command)
}

/// Its path. While it runs it may be replaced by another version: parent and children have to be of one, so that the
/// kernel is asked for the very file that runs.
fn path() -> std::io::Result<PathBuf> {
    let running = std::fs::metadata(SELF)?;
    let same = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (running.dev(), running.ino()))
    };
    Ok(std::env::current_exe().ok().filter(same).unwrap_or_else(|| Path::new(SELF).to_owned()))
}
