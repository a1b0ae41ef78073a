//! The contract between two workers for people: may they share KV, what differs, what is not known, who would notice.

use super::style::Style;
use super::text::{field, printable};
use kvprov_collector::contract::{Contract, GuardRow, Row, Verdict};
use std::io::{self, Write};

/// Characters of a value that tell it apart.
const VALUE: usize = 24;

pub(super) fn write(out: &mut impl Write, contract: &Contract, style: Style) -> io::Result<()> {
    let verdict = if contract.may_share { "may share KV" } else { "must not share KV" };
    let pair = format!("{} and {}", printable(&contract.a), printable(&contract.b));
    writeln!(out, "{}  {verdict}", style.bold(&pair))?;
    for (index, reason) in contract.reasons.iter().enumerate() {
        field(out, style, if index == 0 { "because" } else { "" }, reason)?;
    }
    rows(out, style, "revision", &contract.semantic)?;
    rows(out, style, "adapters", &contract.adapters)?;
    rows(out, style, "layout", &contract.representation)?;
    if contract.guards.is_empty() {
        field(out, style, "guards", "no comparison of the engines is known for these versions and settings")?;
    }
    for (index, guard) in contract.guards.iter().enumerate() {
        field(out, style, if index == 0 { "guards" } else { "" }, &in_words(guard))?;
    }
    Ok(())
}

fn rows(out: &mut impl Write, style: Style, name: &str, rows: &[Row]) -> io::Result<()> {
    for (index, row) in rows.iter().enumerate() {
        let of = row.adapter.as_ref().map(|adapter| format!(" {adapter}")).unwrap_or_default();
        let note = row.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let short = |value: &Option<String>| match value {
            Some(value) => value.chars().take(VALUE).collect::<String>(),
            None => "?".to_owned(),
        };
        let text = match row.verdict {
            Verdict::Equal => format!("equal      {}{of} {}", row.factor, short(&row.a)),
            Verdict::Different => {
                format!("DIFFERENT  {}{of} {} and {}{note}", row.factor, short(&row.a), short(&row.b))
            }
            Verdict::Unknown => format!("unknown    {}{of}{note}", row.factor),
        };
        field(out, style, if index == 0 { name } else { "" }, &text)?;
    }
    Ok(())
}

fn in_words(guard: &GuardRow) -> String {
    let mut text = guard.guard.clone();
    match (&guard.off, guard.notices.is_empty()) {
        (Some(off), _) => text.push_str(&format!(": off, {off}")),
        (None, false) => {
            text.push_str(&format!(": notices {}; {}", guard.notices.join(", "), guard.outcome));
        }
        (None, true) => text.push_str(": passes"),
    }
    if guard.off.is_none() && !guard.misses.is_empty() {
        text.push_str(&format!("; {} is no part of it", guard.misses.join(", ")));
    }
    if guard.off.is_none() && !guard.unknown.is_empty() {
        text.push_str(&format!("; not known here: {}", guard.unknown.join(", ")));
    }
    text
}
