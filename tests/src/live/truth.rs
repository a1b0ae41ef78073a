//! What the store rigs write down of their workers from inside: `truth.jsonl`, one JSON object a line.

use super::{Deed, Deeds};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Reads what every process did. A clear is a removal of every key that was stored then.
pub fn read(path: &Path) -> Result<Deeds, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut lines: Vec<Value> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display())))
        .collect::<Result<_, _>>()?;
    let time = |line: &Value| line["ts"].as_f64().unwrap_or(f64::MAX);
    // Several processes write the file; their lines may not stand in the order of time.
    lines.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let mut deeds = Deeds::new();
    let mut stored: BTreeSet<String> = BTreeSet::new();
    for line in &lines {
        let (Some(pid), Some(operation)) = (line["pid"].as_i64(), line["op"].as_str()) else { continue };
        let mut note = |deed: Deed, key: &str| {
            *deeds.entry((pid, deed, key.to_owned())).or_default() += 1;
        };
        if operation == "clear" {
            for key in std::mem::take(&mut stored) {
                note(Deed::Removed, &key);
            }
            continue;
        }
        let Some(key) = line["key"].as_str() else { continue };
        match operation {
            "write" => {
                stored.insert(key.to_owned());
                note(Deed::Wrote, key);
            }
            "remove" => {
                stored.remove(key);
                note(Deed::Removed, key);
            }
            "hit" | "read_short" | "read_large" => note(Deed::Read, key),
            _ => {}
        }
    }
    Ok(deeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_removes_what_was_stored_then() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("truth.jsonl");
        let lines = [
            r#"{"ts":2,"pid":1,"op":"clear"}"#,
            r#"{"ts":1,"pid":2,"op":"write","key":"early"}"#,
            r#"{"ts":3,"pid":2,"op":"write","key":"late"}"#,
            r#"{"op":"truth"}"#,
        ];
        std::fs::write(&path, lines.join("\n")).expect("a file");
        let deeds = read(&path).expect("deeds");
        assert_eq!(deeds.get(&(1, Deed::Removed, "early".to_owned())), Some(&1));
        assert_eq!(deeds.get(&(1, Deed::Removed, "late".to_owned())), None);
    }
}
