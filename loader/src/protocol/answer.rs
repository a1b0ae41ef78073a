//! Answers of the loader.

use super::codec::{Decoder, Encoder, Malformed};
use crate::containers::{ContainerNames, NotTold};
use crate::process::{Descriptor, Failure, FileKind, FileStat, PATH_MAX, Page, ProcessId};

/// What the loader is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The protocol that it speaks.
    pub version: u32,
    /// Bytes of the ring whose descriptor comes beside the answer; 0 where there is none.
    pub ring_bytes: u32,
    /// Capabilities that it holds, as the bit set of `/proc/PID/status`.
    pub capabilities: u64,
    /// What it cannot do, each with its reason.
    pub lost: Vec<String>,
}

/// What the kernel programs counted of one kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCounter {
    /// The kind, as records number it.
    pub kind: u16,
    /// Calls of watched processes: `filtered + delivered + dropped`.
    pub fired: u64,
    /// Of no interest.
    pub filtered: u64,
    /// Written to the ring.
    pub delivered: u64,
    /// Lost since the ring was full.
    pub dropped: u64,
    /// Delivered with a part that could not be read.
    pub unreadable: u64,
}

/// What the kernel programs counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelCounters {
    /// An entry for each kind of which something was seen.
    pub by_kind: Vec<KernelCounter>,
    /// Children of watched processes that are not watched, since there were too many.
    pub unfollowed: u64,
}

/// Why a kernel program does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What the kernel said.
    pub reason: String,
    /// What is not seen therefore.
    pub lost: String,
}

/// A kernel program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramStatus {
    /// Its name.
    pub name: String,
    /// Why it does not run; `None` when it does.
    pub problem: Option<Problem>,
    /// Nanoseconds that it ran; `None` where the kernel does not measure.
    pub run_time_ns: Option<u64>,
    /// How often it ran; as above.
    pub run_count: Option<u64>,
    /// How often it was skipped, since a program was running already; `None` where the kernel does not tell.
    pub missed: Option<u64>,
}

/// What the loader says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To `Hello`; the descriptor of the ring beside it where there is one.
    Hello(Hello),
    /// Done; nothing to tell.
    Done,
    /// To `Counters`.
    Counters(KernelCounters),
    /// To `Programs`.
    Programs(Page<ProgramStatus>),
    /// To `Processes` and `Watched`.
    Processes(Page<ProcessId>),
    /// To `ProcFile` and `OpenDirectory`: the descriptor is beside it.
    Opened,
    /// To `OpenPath` and `OpenDescriptor`: the descriptor is beside it, with what it was like when it was opened.
    OpenedFile(FileStat),
    /// To `Link`.
    Target(Vec<u8>),
    /// To `Descriptors`.
    Descriptors(Page<Descriptor>),
    /// To `Stat`.
    Stat(FileStat),
    /// To `Identify`.
    Identity(ProcessId),
    /// To anything: why not.
    Failed(Failure),
    /// To `Watch` and `Unwatch`: why the kernel programs did not take it.
    KernelFailed(String),
    /// To `Container`.
    Container(ContainerNames),
    /// To `Container`: why not.
    NotTold(NotTold),
}

// === impl Answer ===

impl Answer {
    /// The message, with the number of the request.
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let mut message = Encoder::default();
        message.u32(number);
        match self {
            Self::Hello(hello) => {
                message.u8(1).u32(hello.version).u32(hello.ring_bytes).u64(hello.capabilities);
                list(&mut message, &hello.lost, |message, text| {
                    message.text(text);
                });
            }
            Self::Done => {
                message.u8(2);
            }
            Self::Counters(counters) => {
                list(message.u8(3).u64(counters.unfollowed), &counters.by_kind, |message, counter| {
                    message.u16(counter.kind).u64(counter.fired).u64(counter.filtered);
                    message.u64(counter.delivered).u64(counter.dropped).u64(counter.unreadable);
                });
            }
            Self::Programs(page) => write_page(message.u8(4), page, |message, program| {
                message.text(&program.name).u8(u8::from(program.problem.is_some()));
                if let Some(problem) = &program.problem {
                    message.text(&problem.reason).text(&problem.lost);
                }
                message.optional(program.run_time_ns).optional(program.run_count).optional(program.missed);
            }),
            Self::Processes(page) => write_page(message.u8(5), page, |message, process| {
                message.u32(process.pid).u64(process.started);
            }),
            Self::Opened => {
                message.u8(6);
            }
            Self::OpenedFile(stat) => write_stat(message.u8(7), stat),
            Self::Target(target) => {
                message.u8(8).bytes(target, PATH_MAX);
            }
            Self::Descriptors(page) => write_page(message.u8(9), page, |message, descriptor| {
                message.u32(descriptor.fd).bytes(&descriptor.target, PATH_MAX).u32(descriptor.device);
                message.u64(descriptor.inode).u8(descriptor.kind as u8).u32(descriptor.flags);
                message.u64(descriptor.position).u64(descriptor.mount);
            }),
            Self::Stat(stat) => write_stat(message.u8(10), stat),
            Self::Identity(process) => {
                message.u8(11).u32(process.pid).u64(process.started);
            }
            Self::Failed(failure) => {
                let (code, number) = failure_number(*failure);
                message.u8(12).u8(code).u32(number as u32);
            }
            Self::KernelFailed(reason) => {
                message.u8(13).text(reason);
            }
            Self::Container(names) => write_names(message.u8(14), names),
            Self::NotTold(why) => {
                let (code, reason) = match why {
                    NotTold::NoRuntime(reason) => (1, reason),
                    NotTold::NotFound(reason) => (2, reason),
                    NotTold::NotNow(reason) => (3, reason),
                };
                message.u8(15).u8(code).text(reason);
            }
        }
        message.finish()
    }

    /// Reads a message: the number of the request, and what it says.
    ///
    /// # Errors
    /// When it is no message of this protocol.
    pub fn decode(message: &[u8]) -> Result<(u32, Self), Malformed> {
        let mut message = Decoder::new(message);
        let number = message.u32()?;
        let answer = match message.u8()? {
            1 => Self::Hello(Hello {
                version: message.u32()?,
                ring_bytes: message.u32()?,
                capabilities: message.u64()?,
                lost: message.list(Decoder::text)?,
            }),
            2 => Self::Done,
            3 => {
                let unfollowed = message.u64()?;
                let by_kind = message.list(|message| {
                    Ok(KernelCounter {
                        kind: message.u16()?,
                        fired: message.u64()?,
                        filtered: message.u64()?,
                        delivered: message.u64()?,
                        dropped: message.u64()?,
                        unreadable: message.u64()?,
                    })
                })?;
                Self::Counters(KernelCounters { by_kind, unfollowed })
            }
            4 => Self::Programs(read_page(&mut message, |message| {
                let name = message.text()?;
                let problem = if message.flag()? {
                    Some(Problem { reason: message.text()?, lost: message.text()? })
                } else {
                    None
                };
                Ok(ProgramStatus {
                    name,
                    problem,
                    run_time_ns: message.optional()?,
                    run_count: message.optional()?,
                    missed: message.optional()?,
                })
            })?),
            5 => Self::Processes(read_page(&mut message, |message| {
                Ok(ProcessId { pid: message.u32()?, started: message.u64()? })
            })?),
            6 => Self::Opened,
            7 => Self::OpenedFile(read_stat(&mut message)?),
            8 => Self::Target(message.bytes(PATH_MAX)?.to_vec()),
            9 => Self::Descriptors(read_page(&mut message, |message| {
                Ok(Descriptor {
                    fd: message.u32()?,
                    target: message.bytes(PATH_MAX)?.to_vec(),
                    device: message.u32()?,
                    inode: message.u64()?,
                    kind: FileKind::from_number(message.u8()?),
                    flags: message.u32()?,
                    position: message.u64()?,
                    mount: message.u64()?,
                })
            })?),
            10 => Self::Stat(read_stat(&mut message)?),
            11 => Self::Identity(ProcessId { pid: message.u32()?, started: message.u64()? }),
            12 => Self::Failed(failure_of(message.u8()?, message.u32()? as i32)?),
            13 => Self::KernelFailed(message.text()?),
            14 => Self::Container(read_names(&mut message)?),
            15 => {
                let (code, reason) = (message.u8()?, message.text()?);
                Self::NotTold(match code {
                    1 => NotTold::NoRuntime(reason),
                    2 => NotTold::NotFound(reason),
                    3 => NotTold::NotNow(reason),
                    _ => return Err(Malformed("no such reason")),
                })
            }
            _ => return Err(Malformed("no such answer")),
        };
        message.end()?;
        Ok((number, answer))
    }
}

fn list<T>(message: &mut Encoder, items: &[T], mut item: impl FnMut(&mut Encoder, &T)) {
    let count = u16::try_from(items.len()).unwrap_or(u16::MAX);
    message.u16(count);
    for value in items.iter().take(usize::from(count)) {
        item(message, value);
    }
}

fn write_page<T>(message: &mut Encoder, page: &Page<T>, item: impl FnMut(&mut Encoder, &T)) {
    message.optional(page.next);
    list(message, &page.items, item);
}

fn read_page<'m, T>(
    message: &mut Decoder<'m>,
    item: impl FnMut(&mut Decoder<'m>) -> Result<T, Malformed>,
) -> Result<Page<T>, Malformed> {
    let next = message.optional()?;
    Ok(Page { items: message.list(item)?, next })
}

fn write_stat(message: &mut Encoder, stat: &FileStat) {
    message.u32(stat.device).u64(stat.inode).u8(stat.kind as u8).u16(stat.permissions).u64(stat.size);
    message.u64(stat.modified as u64).u64(stat.changed as u64).u64(stat.mount);
}

fn read_stat(message: &mut Decoder<'_>) -> Result<FileStat, Malformed> {
    Ok(FileStat {
        device: message.u32()?,
        inode: message.u64()?,
        kind: FileKind::from_number(message.u8()?),
        permissions: message.u16()?,
        size: message.u64()?,
        modified: message.i64()?,
        changed: message.i64()?,
        mount: message.u64()?,
    })
}

fn write_names(message: &mut Encoder, names: &ContainerNames) {
    let ContainerNames { pod, namespace, pod_uid, container, image, image_digest } = names;
    for text in [pod, namespace, pod_uid, container, image, image_digest] {
        message.optional_text(text.as_deref());
    }
}

/// What the texts are not told to be is refused: a name is one at either end.
fn read_names(message: &mut Decoder<'_>) -> Result<ContainerNames, Malformed> {
    let names = ContainerNames {
        pod: message.optional_text()?,
        namespace: message.optional_text()?,
        pod_uid: message.optional_text()?,
        container: message.optional_text()?,
        image: message.optional_text()?,
        image_digest: message.optional_text()?,
    };
    if names.checked() == names { Ok(names) } else { Err(Malformed("a text is no name of a container")) }
}

fn failure_number(failure: Failure) -> (u8, i32) {
    match failure {
        Failure::Gone => (1, 0),
        Failure::NotFound => (2, 0),
        Failure::Denied => (3, 0),
        Failure::NotRegular => (4, 0),
        Failure::Unsupported => (5, 0),
        Failure::Busy => (6, 0),
        Failure::Malformed => (7, 0),
        Failure::NoKernel => (8, 0),
        Failure::Os(number) => (9, number),
    }
}

fn failure_of(code: u8, number: i32) -> Result<Failure, Malformed> {
    Ok(match (code, number) {
        (1, 0) => Failure::Gone,
        (2, 0) => Failure::NotFound,
        (3, 0) => Failure::Denied,
        (4, 0) => Failure::NotRegular,
        (5, 0) => Failure::Unsupported,
        (6, 0) => Failure::Busy,
        (7, 0) => Failure::Malformed,
        (8, 0) => Failure::NoKernel,
        (9, number) => Failure::Os(number),
        _ => return Err(Malformed("no such failure")),
    })
}
