//! What the collector gives to others: metrics, traces.

pub mod metrics;
mod process;
pub mod traces;
