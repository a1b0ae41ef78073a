//! The kernel programs against real processes. They need root; elsewhere they say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so and fails")]
#![allow(clippy::disallowed_methods, reason = "nothing signals that another process waits")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a test says what it skips")]

mod blind;
mod files;
mod lab;
mod law;
mod output;
mod processes;
mod sockets;
