//! The consumer of the ring.
