//! Kernel programs: what watched processes do to files and sockets, and events of processes.
//!
//! A program sits on the tracepoint of one system call, where the call ends, so that calls without a program cost
//! nothing beyond what any tracer costs. It first asks whether the process is watched; for all others that one look
//! is the whole cost. Then it decides by result and by class of the descriptor, and only then copies. Arguments come
//! from the registers that the call began with. Invariant: every event of a watched process is counted once as
//! fired, and once as filtered, delivered or dropped.

#![no_std]
#![no_main]

mod arguments;
mod blind;
mod caller;
mod files;
mod io;
mod maps;
mod output;
mod paths;
mod processes;
mod programs;
mod records;
mod results;
mod sockets;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel lends most of its helpers to programs under this licence only; the source is Apache-2.0.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
