//! The running kvprov: a parent that holds the capabilities, and children that hold none.

pub(crate) mod agent;
pub(crate) mod arguments;
pub(crate) mod collector;
pub(crate) mod demo;
mod logging;
pub(crate) mod parent;
mod words;
