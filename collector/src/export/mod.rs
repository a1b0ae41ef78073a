//! What the collector gives to others: metrics.

pub mod metrics;
mod process;
