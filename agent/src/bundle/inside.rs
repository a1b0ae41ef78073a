//! Keeps paths inside the bundle.

use std::path::{Component, Path, PathBuf};

/// Joins a path of `incident.toml` to the directory of the bundle. The error says why it is refused or unusable.
pub(crate) fn inside(root: &Path, file: &str) -> Result<PathBuf, String> {
    let relative = Path::new(file);
    for part in relative.components() {
        match part {
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir => return Err(format!("path {file:?} leaves the bundle by `..`")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(format!("path {file:?} is absolute, so it is not in the bundle"));
            }
        }
    }
    let path = root.join(relative);
    regular_file_below(root, &path)?;
    Ok(path)
}

/// Checks that a path is a regular file that lies, symbolic links followed, below a directory.
pub(crate) fn regular_file_below(root: &Path, path: &Path) -> Result<(), String> {
    let real = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        _ => format!("not readable: {error}"),
    })?;
    let real_root = root.canonicalize().map_err(|error| format!("bundle directory not readable: {error}"))?;
    if !real.starts_with(&real_root) {
        return Err("a symbolic link leads out of the bundle".to_owned());
    }
    if !real.is_file() {
        return Err("no regular file".to_owned());
    }
    Ok(())
}
