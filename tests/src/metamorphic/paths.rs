//! The directory of a shared store is mounted elsewhere.
//!
//! Renamed is the first part of paths that kernel records name, everywhere at once. Roots of model files stay: some
//! engines make the model's path part of a key, so that renaming it is another configuration.

use super::{Changed, edit_text, without_renaming};
use crate::bundle::Bundle;
use crate::verdict::Found;
use regex::Regex;
use std::collections::BTreeSet;

const KEPT: [&str; 9] = ["models", "proc", "sys", "dev", "usr", "etc", "lib", "root", "home"];

pub(super) fn rename(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let roots = store_roots(bundle);
    if roots.is_empty() {
        return None;
    }
    let alternatives = roots.iter().map(|root| regex::escape(root)).collect::<Vec<_>>().join("|");
    // A root is a whole part of a path and its first: no word before the slash but a URL's host, none after the part.
    let pattern = Regex::new(&format!(r"(^|[^\w./-]|://[\w.:-]*)/({alternatives})($|[^\w.-])")).ok()?;
    let changed = edit_text(bundle, |text| {
        // Twice, for paths that share the sign between them.
        let once = pattern.replace_all(text, "${1}/vol-${2}-x${3}");
        pattern.replace_all(&once, "${1}/vol-${2}-x${3}").into_owned()
    })?;
    without_renaming(changed)
}

fn store_roots(bundle: &Bundle) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for file in bundle.files_of_kind("kernel") {
        let text =
            String::from_utf8_lossy(bundle.files.get(&file).map_or(&[][..], Vec::as_slice)).into_owned();
        for line in text.lines() {
            let Ok(record) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            for key in ["path", "path2"] {
                let path = record.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
                let Some(rest) = path.strip_prefix('/') else { continue };
                let root = rest.split('/').next().unwrap_or_default();
                if !root.is_empty() && !KEPT.contains(&root) {
                    roots.insert(root.to_owned());
                }
            }
        }
    }
    roots
}
