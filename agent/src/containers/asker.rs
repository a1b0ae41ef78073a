//! The thread that asks.
//!
//! It asks one question at a time and may wait for seconds. Who wants names hands over containers and looks for answers
//! whenever it likes; neither ever waits. The thread ends with the [`Asker`], after the question that it is at.

use super::memory::Memory;
use super::{By, ContainerId, Told, Wanted, tell};
use crate::access::ProcessAccess;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;

/// Questions that may wait. What has no room is asked for later.
const WAITING: usize = 256;
/// Answers without a name after which it is said: a container that is just being made is told by the next.
const PATIENT_TRIES: usize = 2;

/// What a person has to know of containers that are not told. Each is said once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// What is not known.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

/// Asks for containers.
#[derive(Debug)]
pub struct Asker {
    questions: SyncSender<Wanted>,
    answers: Receiver<(ContainerId, Told)>,
    memory: Memory,
    said_names: bool,
    said_digest: bool,
}

// === impl Asker ===

impl Asker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(access: impl ProcessAccess + 'static) -> io::Result<Self> {
        let (questions, asked) = sync_channel::<Wanted>(WAITING);
        let (told, answers) = channel();
        std::thread::Builder::new()
            .name("kvprov-containers".to_owned())
            .spawn(move || ask(&access, &asked, &told))?;
        Ok(Self { questions, answers, memory: Memory::default(), said_names: false, said_digest: false })
    }

    /// These containers are there. Asks for those of which nothing was told.
    pub fn want(&mut self, there: impl Iterator<Item = Wanted>, now: Instant) {
        for wanted in self.memory.due(there, now) {
            let id = wanted.id.clone();
            if self.questions.try_send(wanted).is_err() {
                self.memory.put_off(&id, now);
            }
        }
    }

    /// What was told since the last time, and what is to be said to a person.
    pub fn told(&mut self, now: Instant) -> (Vec<(ContainerId, Told)>, Vec<Complaint>) {
        let (mut all, mut complaints) = (Vec::new(), Vec::new());
        while let Ok((id, told)) = self.answers.try_recv() {
            let Some(tries) = self.memory.answered(&id, (told.by(), told.again), now) else { continue };
            complaints.extend(self.complaint(&told, tries));
            all.push((id, told));
        }
        (all, complaints)
    }

    /// Containers by who told what they are called.
    pub fn figures(&self) -> BTreeMap<By, u64> {
        self.memory.figures()
    }

    fn complaint(&mut self, told: &Told, tries: usize) -> Option<Complaint> {
        // The first answer may come before the container is made, or while the runtime starts.
        let why = told.untold.clone().filter(|_| tries >= PATIENT_TRIES || !told.again)?;
        let (said, what) = match &told.names {
            names if names.is_empty() => {
                (&mut self.said_names, "namespace, container and image of workers in containers")
            }
            names if names.image_digest.is_none() => {
                (&mut self.said_digest, "the digest of images of workers in containers")
            }
            _ => return None,
        };
        (!std::mem::replace(said, true)).then_some(Complaint { what, why })
    }
}

fn ask(access: &dyn ProcessAccess, questions: &Receiver<Wanted>, answers: &Sender<(ContainerId, Told)>) {
    while let Ok(wanted) = questions.recv() {
        let told = tell(access, &wanted);
        if answers.send((wanted.id, told)).is_err() {
            return;
        }
    }
}
