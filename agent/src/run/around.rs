//! What every source is started with.

use super::hub::Hub;
use super::options::Options;
use crate::access::Access;
use crate::discover::NodeIdentity;
use kvprov_packs::Packs;
use std::path::PathBuf;
use std::sync::Arc;

/// What is around all sources.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) options: &'a Options,
    pub(crate) node: &'a NodeIdentity,
    pub(crate) packs: &'static Packs,
    pub(crate) access: &'a Arc<Access>,
    pub(crate) hub: &'a Arc<Hub>,
}

// === impl Around ===

impl Around<'_> {
    /// Where a part of the agent keeps what it has to find again.
    pub(crate) fn below(&self, name: &str) -> PathBuf {
        self.options.data.join(name)
    }
}
