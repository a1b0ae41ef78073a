//! KV events: which blocks an engine stored and removed.
