//! End-to-end tests: recorded incidents go through the `kvprov` binary and its verdicts are judged.
//!
//! `incidents/` holds the corpus: one directory a bundle, with `expected.toml` beside its input. The tests in `tests/`
//! state what holds over all of them; this library gives them the corpus ([`corpus`]), bundles that can be edited
//! ([`bundle`]), the binary ([`binary`]), the rules of judgement ([`judge`]) and the transformations under which a
//! verdict must not change ([`metamorphic`]). Nothing here knows a bundle by name: what is tested are kinds of change,
//! never cases.

pub mod binary;
pub mod bundle;
pub mod canary;
pub mod corpus;
pub mod dropping;
pub mod judge;
pub mod live;
pub mod metamorphic;
pub mod mutate;
pub mod pipeline;
pub mod pool;
pub mod score;
pub mod verdict;
