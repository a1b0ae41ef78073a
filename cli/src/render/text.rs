//! Text for people on call: what happened, to whom, since when, what it cost, what proves it, what is unknown, what
//! to do.

use super::style::Style;
use crate::explain::Known;
use crate::pipeline::Outcome;
use kvprov_collector::explain::{self, Words};
use kvprov_collector::lineage::record::Record;
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Evidence, Finding};
use kvprov_model::lineage::LineageStatus;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Evidence lines shown with a finding; `kvprov explain` shows all.
const BRIEF_EVIDENCE: usize = 5;
/// Requests named with a finding.
const BRIEF_REQUESTS: usize = 6;
const WIDTH: usize = 100;
const INDENT: &str = "           ";

pub(super) fn replay(out: &mut impl Write, outcome: &Outcome, style: Style) -> io::Result<()> {
    if outcome.findings.is_empty() {
        writeln!(out, "{}", style.bold("No finding."))?;
    } else {
        let count = outcome.findings.len();
        let heading = if count == 1 { "1 finding".to_owned() } else { format!("{count} findings") };
        writeln!(out, "{}", style.bold(&heading))?;
    }
    for finding in &outcome.findings {
        writeln!(out)?;
        write_finding(out, finding, style, Some(BRIEF_EVIDENCE))?;
    }
    writeln!(out)?;
    write_footer(out, outcome, style)
}

pub(super) fn explanation(out: &mut impl Write, known: &Known, style: Style) -> io::Result<()> {
    for finding in &known.findings {
        write_finding(out, finding, style, None)?;
        writeln!(out)?;
    }
    for record in &known.records {
        let named: Vec<&Finding> = known
            .findings
            .iter()
            .filter(|finding| record.findings.iter().any(|id| id == finding.id.as_str()))
            .collect();
        write_request(out, record, &explain::request(record, &named), style)?;
        writeln!(out)?;
    }
    if known.more_records > 0 {
        let more =
            format!("{} more requests are concerned: kvprov explain REQUEST tells each.", known.more_records);
        writeln!(out, "{}\n", style.dim(&more))?;
    }
    for (index, worker) in known.workers.iter().enumerate() {
        field(out, style, if index == 0 { "workers" } else { "" }, &explain::worker(worker))?;
    }
    write_losses(out, &known.loss, &known.problems, style)
}

/// A request at length.
fn write_request(out: &mut impl Write, record: &Record, words: &Words, style: Style) -> io::Result<()> {
    let name = format!("request {}", printable(&record.lineage.request));
    writeln!(out, "{}  {}", style.bold(&name), words.headline)?;
    field(out, style, "what", &words.what)?;
    for (name, text) in &words.points {
        field(out, style, name, text)?;
    }
    field(out, style, "part", words.parts.as_deref().unwrap_or(""))?;
    let others: Vec<&str> =
        record.ids.iter().map(String::as_str).filter(|id| *id != record.lineage.request).collect();
    field(out, style, "known as", &others.join(", "))?;
    field(out, style, "findings", &record.findings.join(", "))?;
    field(out, style, "trace", record.traceparent.as_deref().unwrap_or(""))?;
    for (index, unknown) in words.unknown.iter().enumerate() {
        field(out, style, if index == 0 { "unknown" } else { "" }, unknown)?;
    }
    field(out, style, "cost", words.cost.as_deref().unwrap_or(""))?;
    for (index, advice) in words.advice.iter().enumerate() {
        field(out, style, if index == 0 { "do" } else { "" }, advice)?;
    }
    Ok(())
}

fn write_finding(
    out: &mut impl Write,
    finding: &Finding,
    style: Style,
    brief: Option<usize>,
) -> io::Result<()> {
    writeln!(
        out,
        "{}  {}  {}",
        style.confidence(finding.confidence),
        style.bold(&format!("{} ({})", finding.detector, finding.cause)),
        style.dim(finding.id.as_str())
    )?;
    field(out, style, "what", &finding.summary)?;
    field(out, style, "who", &finding.workers.join(", "))?;
    if !finding.requests.is_empty() {
        let shown = brief.map_or(finding.requests.len(), |_| BRIEF_REQUESTS).min(finding.requests.len());
        let mut names = finding.requests[..shown].join(", ");
        if shown < finding.requests.len() {
            names.push_str(&format!(" and {} more ids", finding.requests.len() - shown));
        }
        field(out, style, "requests", &names)?;
    }
    field(out, style, "when", &span(finding.first_seen, finding.last_seen))?;
    if finding.tokens > 0 {
        field(out, style, "cost", &cost(finding))?;
    }
    let shown = brief.unwrap_or(usize::MAX);
    for (index, evidence) in finding.evidence.iter().take(shown).enumerate() {
        field(out, style, if index == 0 { "proof" } else { "" }, &place(evidence))?;
    }
    if finding.evidence.len() > shown {
        field(
            out,
            style,
            "",
            &format!("… {} more lines: kvprov explain {}", finding.evidence.len() - shown, finding.id),
        )?;
    }
    for (index, unknown) in finding.unknown.iter().enumerate() {
        field(out, style, if index == 0 { "unknown" } else { "" }, unknown)?;
    }
    field(out, style, "do", &finding.advice)
}

fn cost(finding: &Finding) -> String {
    let what = if finding.count == 1 { "request or event" } else { "requests or events" };
    format!("{} prompt tokens over {} {what}", finding.tokens, finding.count)
}

fn place(evidence: &Evidence) -> String {
    match evidence.line {
        0 => format!("{}: {}", evidence.source, evidence.says),
        line => format!("{}:{line}: {}", evidence.source, evidence.says),
    }
}

fn span(first: Option<WallTime>, last: Option<WallTime>) -> String {
    match (first, last) {
        (Some(first), Some(last)) if first != last => {
            format!("since {}, last at {}", first.to_rfc3339(), last.to_rfc3339())
        }
        (Some(first), _) => format!("at {}", first.to_rfc3339()),
        (None, _) => "no source dates it".to_owned(),
    }
}

/// A named line, wrapped; nothing where the text is empty.
pub(super) fn field(out: &mut impl Write, style: Style, name: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let text = printable(text);
    let mut lines = wrap(&text, WIDTH - INDENT.len()).into_iter();
    let first = lines.next().unwrap_or_default();
    writeln!(out, "  {}{first}", style.dim(&format!("{name:<9}")))?;
    for line in lines {
        writeln!(out, "{INDENT}{line}")?;
    }
    Ok(())
}

/// Escapes what a terminal would obey: ids, names and paths come from outside. Directional marks could make a line read
/// as another.
pub(super) fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    let obeyed = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(obeyed) {
        return text.into();
    }
    let escape = |c: char| if obeyed(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(escape).collect::<String>().into()
}

/// Breaks text at blanks. A word longer than the width stays whole, so that ids and paths can be copied.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let fits = lines
            .last()
            .is_some_and(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn write_footer(out: &mut impl Write, outcome: &Outcome, style: Style) -> io::Result<()> {
    let status = |wanted| outcome.lineages.iter().filter(|record| record.lineage.status == wanted).count();
    if !outcome.lineages.is_empty() {
        writeln!(
            out,
            "Requests: {} consistent, {} divergent, {} unverified.",
            status(LineageStatus::Consistent),
            status(LineageStatus::Divergent),
            status(LineageStatus::Unverified)
        )?;
    }
    let lines = &outcome.report.lines;
    writeln!(
        out,
        "{}",
        style.dim(&format!(
            "Read {} workers, {} observations; of {} lines {} matched, {} ignored, {} unparsed.",
            outcome.workers.len(),
            outcome.observations,
            lines.total,
            lines.matched,
            lines.ignored,
            lines.unparsed
        ))
    )?;
    let problems: Vec<String> = outcome.report.problems.iter().map(ToString::to_string).collect();
    write_losses(out, &outcome.report.loss, &problems, style)
}

fn write_losses(
    out: &mut impl Write,
    loss: &BTreeMap<String, u64>,
    problems: &[String],
    style: Style,
) -> io::Result<()> {
    for (reason, count) in loss {
        writeln!(
            out,
            "{}",
            style.bold(&format!("Lost: {count} × {reason}. What was lost may hold what is missing here."))
        )?;
    }
    for problem in problems {
        writeln!(out, "{} {}", style.bold("Problem:"), printable(problem))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_stay_whole() {
        let id = "x".repeat(200);
        assert_eq!(wrap(&format!("a {id} b"), 20), ["a".to_owned(), id, "b".to_owned()]);
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(printable("a\u{1b}[31m\u{9b}b\u{202e}"), "a\\u{1b}[31m\\u{9b}b\\u{202e}");
        assert_eq!(printable("plain é"), "plain é");
    }

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
    }
}
