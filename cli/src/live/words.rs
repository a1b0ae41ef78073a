//! What the halves say to a person at a terminal.

use kvprov_agent::discover::Change;
use kvprov_agent::run::Report;
use kvprov_collector::evaluate::Transition;
use kvprov_model::finding::{Confidence, FindingState};

/// What the agent reports, in a line; `None`: nothing that a person waits for.
pub(crate) fn report(report: &Report) -> Option<String> {
    match report {
        Report::Worker(Change::Found(worker)) => {
            let version = worker.engine_version.as_deref().unwrap_or("of unknown version");
            let role = worker.role.as_ref().map(|role| format!(", {}", role.as_str())).unwrap_or_default();
            Some(format!(
                "found   {}: {} {version}{role}, pid {}, {} processes",
                worker.id,
                worker.engine,
                worker.leader.pid,
                worker.processes.len()
            ))
        }
        Report::Worker(Change::Changed(_)) => None,
        Report::Worker(Change::Gone { worker, exit, .. }) => {
            let how = exit.and_then(|exit| exit.signal).map(|signal| format!(" by signal {signal}"));
            Some(format!("gone    {worker}{}", how.unwrap_or_default()))
        }
        Report::Output { worker, what } => Some(format!("reads   {what} (of {worker})")),
        Report::Blind(what) => Some(format!("blind   {what}")),
    }
}

/// What became of a finding, in a line or two.
pub(crate) fn transition(transition: &Transition) -> String {
    let finding = &transition.finding;
    let what = match finding.state {
        FindingState::Opened => "FINDING",
        FindingState::Changed => "CHANGED",
        FindingState::Superseded => "REPLACED",
        FindingState::Resolved => "RESOLVED",
    };
    let head = format!(
        "{what} {} {} ({}) {}",
        confidence(finding.confidence),
        finding.detector.as_str(),
        finding.cause.as_str(),
        finding.id
    );
    if finding.state == FindingState::Resolved {
        head
    } else {
        format!("{head}\n        {}", finding.summary)
    }
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Suspected => "suspected",
        Confidence::Risk => "risk",
    }
}
