//! The kernel programs against real processes. They need root; elsewhere they say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test says so and fails")]

mod blind;
mod files;
mod lab;
mod law;
mod output;
mod processes;
mod sockets;
