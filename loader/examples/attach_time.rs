//! Attaches each program by itself and tells how long that took.
#![allow(clippy::print_stdout, reason = "it speaks to a terminal")]
fn main() {
    use kvprov_loader::attach::{Kernel, Options};
    let start = std::time::Instant::now();
    let kernel = Kernel::start(&Options::default());
    println!("all: {:?}", start.elapsed());
    drop(kernel);
    println!("and detached: {:?}", start.elapsed());
    for name in std::env::args().skip(1) {
        let start = std::time::Instant::now();
        let kernel = Kernel::start(&Options { only: vec![name.clone()], ..Options::default() });
        println!("{name}: {:?} {}", start.elapsed(), kernel.map_or_else(|error| error.to_string(), |_| "attached".to_owned()));
    }
}
