//! What the ring of the kernel programs says, and what comes of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod any_course;
mod connections;
mod files;
mod kills;
mod mounts;
mod processes;
mod records;
mod rig;
#[path = "../support/ring.rs"]
mod ring;
