//! The prefix grammars over arbitrary text: what is peeled off must leave a part of the line.

#![no_main]

use kvprov_agent::logs::prefix::{peel, unwrap};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let unwrapped = unwrap(text);
    let line = peel(&unwrapped.payload, unwrapped.prefix.clone());
    assert!(line.message.len() <= text.len().max(unwrapped.payload.len()));
});
