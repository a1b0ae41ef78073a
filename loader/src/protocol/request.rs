//! Questions of the agent.

use super::codec::{Decoder, Encoder, Malformed};
use crate::containers::ContainerId;
use crate::process::{Link, PATH_MAX, ProcFile, ProcessId};

/// A question of the agent. The list is closed: what is not on it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Who are you. Answered with [`super::Answer::Hello`] and, where kernel programs run, the descriptor of the ring.
    Hello {
        /// The protocol that the agent speaks.
        version: u32,
    },
    /// Follow a process and its children from now on.
    Watch {
        /// Which.
        process: ProcessId,
        /// What of it, as the kernel programs define it.
        flags: u32,
    },
    /// Follow a process no longer.
    Unwatch {
        /// Which.
        process: ProcessId,
    },
    /// The processes that [`Request::Watch`] named, by pid.
    Watched {
        /// Those with a pid above.
        after: u32,
    },
    /// What the kernel programs counted.
    Counters,
    /// Which kernel programs run, and what they cost.
    Programs {
        /// Place in the list.
        from: u32,
    },
    /// The processes of the machine, by pid.
    Processes {
        /// Those with a pid above.
        after: u32,
    },
    /// Which process has a pid.
    Identify {
        /// The pid.
        pid: u32,
    },
    /// Open a file of `/proc/PID`.
    ProcFile {
        /// Whose.
        process: ProcessId,
        /// Which.
        file: ProcFile,
    },
    /// Read a link of `/proc/PID`.
    Link {
        /// Whose.
        process: ProcessId,
        /// Which.
        link: Link,
    },
    /// The descriptors of a process, by number.
    Descriptors {
        /// Whose.
        process: ProcessId,
        /// From this number on.
        from: u32,
        /// At most so many; 0 is as many as fit.
        most: u32,
    },
    /// Open a regular file for reading.
    OpenPath {
        /// As this process sees it.
        process: ProcessId,
        /// An absolute path.
        path: Vec<u8>,
    },
    /// Open the regular file behind a descriptor again, for reading.
    OpenDescriptor {
        /// Whose.
        process: ProcessId,
        /// Its number.
        fd: u32,
    },
    /// Open a directory for listing. Its descriptor holds entries that the agent itself reads, however many.
    OpenDirectory {
        /// As this process sees it.
        process: ProcessId,
        /// An absolute path.
        path: Vec<u8>,
    },
    /// What a path names.
    Stat {
        /// As this process sees it.
        process: ProcessId,
        /// An absolute path.
        path: Vec<u8>,
        /// Where a link leads, instead of the link.
        follow: bool,
    },
    /// What the container runtime says of a container.
    Container {
        /// Which.
        id: ContainerId,
    },
}

// === impl Request ===

impl Request {
    /// The message, with the number that its answer will repeat.
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let mut message = Encoder::default();
        message.u32(number);
        match self {
            Self::Hello { version } => message.u8(1).u32(*version),
            Self::Watch { process, flags } => id(message.u8(2), *process).u32(*flags),
            Self::Unwatch { process } => id(message.u8(3), *process),
            Self::Watched { after } => message.u8(4).u32(*after),
            Self::Counters => message.u8(5),
            Self::Programs { from } => message.u8(6).u32(*from),
            Self::Processes { after } => message.u8(7).u32(*after),
            Self::Identify { pid } => message.u8(8).u32(*pid),
            Self::ProcFile { process, file } => id(message.u8(9), *process).u8(*file as u8),
            Self::Link { process, link } => id(message.u8(10), *process).u8(*link as u8),
            Self::Descriptors { process, from, most } => id(message.u8(11), *process).u32(*from).u32(*most),
            Self::OpenPath { process, path } => id(message.u8(12), *process).bytes(path, usize::MAX),
            Self::OpenDescriptor { process, fd } => id(message.u8(13), *process).u32(*fd),
            Self::OpenDirectory { process, path } => id(message.u8(14), *process).bytes(path, usize::MAX),
            Self::Stat { process, path, follow } => {
                id(message.u8(15), *process).u8(u8::from(*follow)).bytes(path, usize::MAX)
            }
            Self::Container { id } => message.u8(16).text(id.as_str()),
        };
        message.finish()
    }

    /// Reads a message. The number comes back also when the rest is malformed, so that it can be answered.
    pub fn decode(message: &[u8]) -> (Option<u32>, Result<Self, Malformed>) {
        let mut decoder = Decoder::new(message);
        match decoder.u32() {
            Err(malformed) => (None, Err(malformed)),
            Ok(number) => (Some(number), Self::body(&mut decoder)),
        }
    }

    fn body(message: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let request = match message.u8()? {
            1 => Self::Hello { version: message.u32()? },
            2 => Self::Watch { process: process(message)?, flags: message.u32()? },
            3 => Self::Unwatch { process: process(message)? },
            4 => Self::Watched { after: message.u32()? },
            5 => Self::Counters,
            6 => Self::Programs { from: message.u32()? },
            7 => Self::Processes { after: message.u32()? },
            8 => Self::Identify { pid: message.u32()? },
            9 => Self::ProcFile {
                process: process(message)?,
                file: ProcFile::from_number(message.u8()?).ok_or(Malformed("no such file of /proc"))?,
            },
            10 => Self::Link {
                process: process(message)?,
                link: Link::from_number(message.u8()?).ok_or(Malformed("no such link of /proc"))?,
            },
            11 => {
                Self::Descriptors { process: process(message)?, from: message.u32()?, most: message.u32()? }
            }
            12 => Self::OpenPath { process: process(message)?, path: path(message)? },
            13 => Self::OpenDescriptor { process: process(message)?, fd: message.u32()? },
            14 => Self::OpenDirectory { process: process(message)?, path: path(message)? },
            15 => {
                let process = process(message)?;
                let follow = message.flag()?;
                Self::Stat { process, path: path(message)?, follow }
            }
            16 => {
                let id = message.text()?;
                Self::Container { id: ContainerId::parse(&id).ok_or(Malformed("no id of a container"))? }
            }
            _ => return Err(Malformed("no such request")),
        };
        message.end()?;
        Ok(request)
    }
}

fn id(message: &mut Encoder, process: ProcessId) -> &mut Encoder {
    message.u32(process.pid).u64(process.started)
}

fn process(message: &mut Decoder<'_>) -> Result<ProcessId, Malformed> {
    let pid = message.u32()?;
    if pid == 0 || pid > i32::MAX as u32 {
        return Err(Malformed("no pid"));
    }
    Ok(ProcessId { pid, started: message.u64()? })
}

fn path(message: &mut Decoder<'_>) -> Result<Vec<u8>, Malformed> {
    let path = message.bytes(PATH_MAX)?;
    if path.first() != Some(&b'/') || path.contains(&0) {
        return Err(Malformed("a path is not absolute or holds NUL"));
    }
    Ok(path.to_vec())
}
