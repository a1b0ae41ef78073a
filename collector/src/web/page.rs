//! The page at `/`: what was found, by whom, since when. Rendered here, without a script and without anything from
//! elsewhere.
//!
//! Invariant: every text from outside goes through [`escape`].

use super::State;
use super::lists::{confidence_word, state_word};
use crate::run::{Seen, rollout};
use axum::response::{Html, IntoResponse, Response};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use std::fmt::Write as _;

/// Findings, and workers, that the page shows; the API has all.
const SHOWN: usize = 100;
/// Evidence shown with a finding.
const EVIDENCE: usize = 8;
/// Requests named with a finding.
const REQUESTS: usize = 8;
/// Revisions named with a model and role.
const REVISIONS: usize = 6;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;\
color:#1b1f24;background:#fff}h1{font-size:1.3rem}h2{font-size:1.1rem;margin-top:2rem}\
article{border:1px solid #d0d7de;border-left-width:5px;border-radius:4px;padding:.6rem 1rem;margin:1rem 0}\
.confirmed{border-left-color:#b42318}.suspected{border-left-color:#b54708}.risk{border-left-color:#175cd3}\
.ended{opacity:.65}b.c{text-transform:uppercase;font-size:.8rem;letter-spacing:.05em}\
code,td,pre{font:13px/1.4 ui-monospace,monospace}pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}\
small{color:#57606a}@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}\
article{border-color:#30363d}small{color:#9198a1}a{color:#79b8ff}}";

/// The page.
pub(super) async fn page(state: State) -> Response {
    let html = render(&state.board.seen());
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    ([("content-security-policy", policy)], Html(html)).into_response()
}

fn render(seen: &Seen) -> String {
    let mut out = String::with_capacity(16 << 10);
    let count = seen.findings.len();
    let title = match count {
        0 => "no finding".to_owned(),
        1 => "1 finding".to_owned(),
        more => format!("{more} findings"),
    };
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <meta http-equiv=\"refresh\" content=\"5\"><title>kvprov: {title}</title><style>{STYLE}</style></head><body>\
         <h1>kvprov: {title}</h1>"
    );
    header(&mut out, seen);
    for finding in seen.findings.iter().take(SHOWN) {
        article(&mut out, finding, false);
    }
    if count > SHOWN {
        let _ =
            write!(out, "<p>{} more: <a href=\"/api/v1/findings\">/api/v1/findings</a></p>", count - SHOWN);
    }
    if !seen.totals.ended.is_empty() {
        out.push_str("<h2>No longer stated</h2>");
        for finding in seen.totals.ended.iter().rev().take(SHOWN / 4) {
            article(&mut out, finding, true);
        }
    }
    rollouts(&mut out, seen);
    workers(&mut out, seen);
    out.push_str(
        "<p><small>As JSON: <a href=\"/api/v1/findings\">findings</a>, <a href=\"/api/v1/lineages\">lineages</a>, \
         <a href=\"/api/v1/workers\">workers</a>, <a href=\"/api/v1/stores\">stores</a>, \
         <a href=\"/api/v1/keyspaces\">keyspaces</a>, <a href=\"/api/v1/rollout\">rollout</a>; <a href=\"/metrics\">metrics</a>.</small></p></body></html>",
    );
    out
}

fn header(out: &mut String, seen: &Seen) {
    let numbers = &seen.numbers;
    let lost: u64 = numbers.lost.values().sum();
    let of_workers: u64 =
        seen.workers.iter().flat_map(|worker| &worker.losses).map(|loss| loss.records).sum();
    if let Some(reason) = &seen.failing {
        let _ =
            write!(out, "<article class=\"confirmed\"><b>The ledger fails:</b> {}</article>", escape(reason));
    }
    if let Some(reason) = &seen.misdeclared {
        let reason = escape(reason);
        let _ = write!(out, "<article class=\"suspected\"><b>Expected revisions:</b> {reason}</article>");
    }
    if !seen.ready {
        out.push_str("<p>What the ledger held before the start is still being evaluated.</p>");
    }
    let received: u64 = numbers.observations.values().sum();
    let _ = write!(
        out,
        "<p><small>{} workers, {} nodes ({} silent), {received} observations; lost: {}.</small></p>",
        seen.workers.len(),
        numbers.nodes,
        numbers.silent,
        lost.saturating_add(of_workers),
    );
}

fn article(out: &mut String, finding: &Finding, ended: bool) {
    let confidence = confidence_word(finding);
    let _ = write!(
        out,
        "<article class=\"{confidence}{}\"><b class=\"c\">{confidence}</b> <b>{} ({})</b> <small>{}, \
         <a href=\"/api/v1/findings/{id}\"><code>{id}</code></a></small><br>{}<br><small>{}; {}",
        if ended { " ended" } else { "" },
        escape(finding.detector.as_str()),
        escape(finding.cause.as_str()),
        state_word(finding.state),
        escape(&finding.summary),
        escape(&finding.workers.join(", ")),
        escape(&span(finding)),
        id = escape(finding.id.as_str()),
    );
    if !finding.requests.is_empty() {
        let shown =
            finding.requests.iter().take(REQUESTS).map(|id| escape(id)).collect::<Vec<_>>().join(", ");
        let _ = write!(out, "; requests {shown}");
        if finding.requests.len() > REQUESTS {
            let _ = write!(out, " and {} more ids", finding.requests.len() - REQUESTS);
        }
    }
    out.push_str("</small>");
    if !ended {
        out.push_str("<pre>");
        for evidence in finding.evidence.iter().take(EVIDENCE) {
            let _ = match evidence.line {
                0 => writeln!(out, "{}: {}", escape(&evidence.source), escape(&evidence.says)),
                line => writeln!(out, "{}:{line}: {}", escape(&evidence.source), escape(&evidence.says)),
            };
        }
        out.push_str("</pre>");
        for unknown in &finding.unknown {
            let _ = write!(out, "<small>Unknown: {}.</small><br>", escape(unknown));
        }
        let _ = write!(out, "<small>{}</small>", escape(&finding.advice));
    }
    out.push_str("</article>");
}

/// Which share of workers and requests has which revision, a line a model and role.
fn rollouts(out: &mut String, seen: &Seen) {
    let lineages = seen.survey.as_ref().map(|survey| survey.lineages.as_slice()).unwrap_or_default();
    let all = rollout::of(&seen.workers, lineages);
    if all.is_empty() {
        return;
    }
    out.push_str("<h2>Revisions</h2><table><tr><th>model<th>role<th>revisions");
    for entry in all.iter().take(SHOWN) {
        let shares = entry.revisions.iter().take(REVISIONS).map(|one| {
            let requests = match one.requests {
                0 => String::new(),
                _ => format!(", {:.0} % of requests", one.requests_share * 100.0),
            };
            format!("{}: {} of {} workers{requests}", one.revision, one.workers, entry.workers)
        });
        let shares = shares.collect::<Vec<_>>().join("; ");
        let _ =
            write!(out, "<tr><td>{}<td>{}<td>{}", escape(&entry.model), escape(&entry.role), escape(&shares));
    }
    out.push_str("</table>");
}

fn workers(out: &mut String, seen: &Seen) {
    if seen.workers.is_empty() {
        out.push_str("<h2>Workers</h2><p>None was seen yet.</p>");
        return;
    }
    out.push_str("<h2>Workers</h2><table><tr><th>worker<th>node<th>role<th>engine<th>revision<th>watched by<th>last seen");
    for worker in seen.workers.iter().take(SHOWN) {
        let gone = worker.gone.as_ref().map_or(String::new(), |gone| format!(" (gone {gone})"));
        let cells = [
            worker.id.clone() + &gone,
            worker.node.clone(),
            worker.role.clone(),
            format!("{} {}", worker.engine, worker.engine_version),
            worker.revision.clone().unwrap_or_else(|| "unknown".to_owned()),
            worker.watched_by.iter().cloned().collect::<Vec<_>>().join(", "),
            worker.last_seen.clone().unwrap_or_default(),
        ];
        out.push_str("<tr>");
        for cell in cells {
            let _ = write!(out, "<td>{}", escape(&cell));
        }
    }
    out.push_str("</table>");
}

fn span(finding: &Finding) -> String {
    let stamp = |time: WallTime| time.to_rfc3339();
    match (finding.first_seen, finding.last_seen) {
        (Some(first), Some(last)) if first != last => {
            format!("since {}, last at {}", stamp(first), stamp(last))
        }
        (Some(first), _) => format!("at {}", stamp(first)),
        (None, _) => "no source dates it".to_owned(),
    }
}

/// Text from outside as HTML text or a quoted attribute. Control and directional marks, which make a line read as
/// another one, are shown as what they are.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
            }
            other if other.is_control() => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::finding::{Cause, Confidence, Detector, Evidence, FindingState};
    use kvprov_model::id::FindingId;
    use std::sync::Arc;

    #[test]
    fn text_from_outside_stays_text() {
        let hostile = "<script>alert('x')</script>\u{202e}\n\" onload=\"x";
        let finding = Finding {
            id: FindingId::from(hostile),
            detector: Detector::StoreConflict,
            confidence: Confidence::Risk,
            cause: Cause::Cleared,
            state: FindingState::Opened,
            summary: hostile.to_owned(),
            requests: vec![hostile.to_owned()],
            workers: vec![hostile.to_owned()],
            tokens: 0,
            count: 1,
            first_seen: None,
            last_seen: None,
            evidence: vec![Evidence { source: hostile.to_owned(), line: 1, says: hostile.to_owned() }],
            unknown: vec![hostile.to_owned()],
            advice: hostile.to_owned(),
            subject: hostile.to_owned(),
        };
        let html = render(&Seen { findings: Arc::new(vec![finding]), ..Seen::default() });
        assert!(!html.contains("<script") && !html.contains("onload=\"x") && !html.contains('\u{202e}'));
        assert!(html.contains("&lt;script&gt;"));
    }
}
