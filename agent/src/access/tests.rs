//! What an agent sees with and without a loader.
