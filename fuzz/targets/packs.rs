//! The pack loader over arbitrary text, and the matcher that it gives over the same text.

#![no_main]

use kvprov_packs::{Packs, Speaker};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let packs = Packs::from_texts(&[("fuzz/fuzz.toml", text)]);
    if let Ok(packs) = packs {
        for line in text.lines() {
            let _ = packs.matcher().match_message(line, &Speaker::default());
        }
    }
});
