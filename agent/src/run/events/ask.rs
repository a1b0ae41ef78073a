//! Asks a worker where it publishes, where its settings do not say it all: a port that the system chose, ranks.

use super::locate::Locator;
use crate::events::subscribe::targets::{self, Publisher};
use crate::http::{Connection, Limits, ReadPath};
use kvprov_model::id::WorkerId;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::sleep;

/// A worker that does not answer yet is asked again after this, later more rarely.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Questions to one worker: engines that load a large model listen after many minutes.
const QUESTIONS: u32 = 400;

/// What a worker answered.
pub(super) struct Answer {
    pub(super) worker: WorkerId,
    pub(super) publishers: Vec<Publisher>,
}

/// Asks until there is an answer, of whatever kind.
pub(super) async fn ask(worker: WorkerId, port: u16, locator: Locator, answers: UnboundedSender<Answer>) {
    let mut pause = FIRST;
    for _ in 0..QUESTIONS {
        if let Some(publishers) = once(port, &locator).await {
            let _ = answers.send(Answer { worker, publishers });
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// One question; `None`: there is nobody yet, or the answer is not known to be the worker's.
async fn once(port: u16, locator: &Locator) -> Option<Vec<Publisher>> {
    let limits = Limits::default();
    for address in locator.addresses(port).ok()? {
        let Ok(connection) = Connection::open(address, &limits).await else { continue };
        let Ok(local) = connection.local_address() else { continue };
        if !locator.is_own(address, local) {
            continue;
        }
        let mut body = Vec::new();
        // Refused: a release that does not know the question. What its settings say has to do.
        return match connection
            .get_into(ReadPath::KvEventSources, &limits, &mut |piece| body.extend_from_slice(piece))
            .await
        {
            Ok(_) => Some(targets::of_answer(&body)),
            Err(error) => {
                tracing::debug!(%error, %address, "where KV events are published is not answered");
                Some(Vec::new())
            }
        };
    }
    None
}
