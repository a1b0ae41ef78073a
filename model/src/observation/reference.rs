//! The reference page of observations, generated from the types.

use super::Body;
use crate::{counter, fact};
use std::fmt::Write as _;

/// `docs/observations.md`, to be compared with or written to the file by `cargo xtask docs`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Observations\n\n\
         <!-- Generated from the types in model/ by `cargo xtask docs`; edit there. -->\n\n\
         An observation is an OTLP log record with `event.name` = `kvprov.<kind>`. Attributes carry the prefix\n\
         `kvprov.`, left out below. Absent means not known. Kinds and attributes that a reader does not know are\n\
         kept and travel on.\n\n\
         ## Envelope\n\n\
         | attribute | type | says |\n|---|---|---|\n\
         | `schema_version` | integer | version of the contract of the sender |\n\
         | `id` | 16 bytes | hash of source instance, generation, offset, index; equal for the same place read twice |\n\
         | `worker` | text | the worker spoken of |\n\
         | `source` | word: `kernel`, `log`, `metrics`, `events`, `config` | what kind of source saw it |\n\
         | `stream` | text | source instance: file, path, endpoint |\n\
         | `position` | integer | line or record from 1; 0: the stream as a whole |\n\
         | `monotonic_ns` | integer | nanoseconds since boot |\n\
         | `wall_ns` | integer | nanoseconds since the epoch on the node's clock |\n\
         | `says` | text | the words, rebuilt from a template and its allow-listed fields |\n\n\
         Resource: `host.name` (node), `kvprov.boot_id`.\n",
    );
    for kind in Body::KINDS {
        let _ = write!(page, "\n## `{}`\n\n{}\n\n", kind.name, prose(kind.doc));
        page.push_str("| attribute | type | says |\n|---|---|---|\n");
        for field in kind.fields {
            let mut field_type = field.field_type.to_owned();
            if !field.words.is_empty() && field.words.len() <= 12 {
                let words: Vec<String> = field.words.iter().map(|word| format!("`{word}`")).collect();
                field_type = format!("{field_type}: {}", words.join(", "));
            }
            let _ = writeln!(page, "| `{}` | {field_type} | {} |", field.name, prose(field.doc));
        }
    }
    page.push_str(
        "\n## Counters\n\nNames in `values` and `totals` of `counters`.\n\n| name | says |\n|---|---|\n",
    );
    for (name, doc) in counter::ALL {
        let _ = writeln!(page, "| `{name}` | {} |", prose(doc));
    }
    page.push_str("\n## Facts\n\nNames in `facts` of `worker`.\n\n| name | says |\n|---|---|\n");
    for (name, doc) in fact::ALL {
        let _ = writeln!(page, "| `{name}` | {} |", prose(doc));
    }
    page
}

fn prose(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}
