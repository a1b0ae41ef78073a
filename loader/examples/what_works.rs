//! Tells what works with the capabilities that it was started with: `setpriv` takes away others, one after the other.
//!
//! Arguments: a pid of a process of another user, a file that only that user may read, and whether CAP_SYS_ADMIN asks
//! for run times (`statistics`).
#![allow(clippy::print_stdout, reason = "it speaks to a terminal")]

use kvprov_loader::attach::{Kernel, Options};
use kvprov_loader::inspect::{OpenProcess, identify};
use kvprov_loader::privileges::{Status, kept, name, restrict};
use kvprov_loader::process::{Link, ProcFile};
use rustix::thread::CapabilitySet;

fn main() {
    let status = Status::own().unwrap_or_default();
    println!("has {} as user {}", name(CapabilitySet::from_bits_retain(status.effective)), status.user);
    let mut arguments = std::env::args().skip(1);
    let other = arguments.next().and_then(|pid| pid.parse().ok());
    let file = arguments.next().unwrap_or_default();
    let statistics = arguments.next().is_some();
    match Kernel::start(&Options { statistics, ..Options::default() }) {
        Err(error) => println!("kernel programs: no: {error}"),
        Ok(mut kernel) => {
            tell(&kernel, "at start");
            let left = restrict(kept(status.permitted, (6, 18)));
            println!("restricted: {}", left.map_or_else(|error| error.to_string(), |left| left.to_string()));
            println!("  watch: {:?}", kernel.watch(1, 7).map_err(|error| error.to_string()));
            println!("  watched: {:?}", kernel.watched());
            println!("  unwatch: {:?}", kernel.unwatch(1).map_err(|error| error.to_string()));
            println!("  counters: {:?}", kernel.counters().map(|_| ()).map_err(|error| error.to_string()));
            tell(&kernel, "restricted");
        }
    }
    let Some(process) = other.and_then(|pid| identify(pid).ok()).and_then(|id| OpenProcess::open(id).ok())
    else {
        return;
    };
    for file in ProcFile::ALL {
        // Some are refused at open, some at read.
        let read = process
            .file(file)
            .map(|file| kvprov_loader::inspect::read_at_most(file, 1 << 20).map(|(text, _)| text.len()));
        println!("{}: {read:?}", file.name());
    }
    for link in Link::ALL {
        println!("{}: {:?}", link.name(), process.link(link).map(|target| target.len()));
    }
    println!("descriptors: {:?}", process.descriptors(0, 10, 10_000).map(|page| page.items.len()));
    let (start, mut count, mut from) = (std::time::Instant::now(), 0, Some(0));
    while let Some(page) = from.and_then(|from| process.descriptors(from, usize::MAX, 48 << 10).ok()) {
        count += page.items.len();
        from = page.next.and_then(|next| u32::try_from(next).ok());
    }
    println!("all {count} descriptors in {:?}", start.elapsed());
    println!("file: {:?}", process.open_path(file.as_bytes()).map(|(_, stat)| stat.size));
    println!("directory: {:?}", process.open_directory(b"/").map(|_| ()));
}

fn tell(kernel: &Kernel, when: &str) {
    let programs = kernel.programs();
    let missing: Vec<String> = programs
        .iter()
        .filter_map(|program| Some(format!("{}: {}", program.name, program.attached.as_ref().err()?.reason)))
        .collect();
    println!("kernel programs {when}: {} of {} attached", programs.len() - missing.len(), programs.len());
    for one in missing.iter().take(3) {
        println!("  {one}");
    }
    let numbers = programs.iter().filter(|program| program.missed.is_some()).count();
    let timed = programs.iter().filter(|program| program.run_time_ns.is_some()).count();
    println!("  numbers of {numbers}, run times of {timed}");
}
