//! The collector: merges observations into the ledger and concludes.
//!
//! The agent observes, the collector concludes. A detector knows neither where an observation came from nor where a
//! finding goes.

pub mod contract;
pub mod declare;
pub mod detect;
pub mod evaluate;
pub mod explain;
pub mod export;
pub mod intake;
pub mod ledger;
pub mod lineage;
pub mod otlp;
pub mod receive;
pub mod run;
pub mod serve;
pub mod view;
pub mod web;
