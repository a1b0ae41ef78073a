//! The kernel programs against real processes. They need root; elsewhere they say so and pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test says so and fails")]

mod files;
mod lab;
