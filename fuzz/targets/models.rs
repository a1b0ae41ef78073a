//! The headers and texts of model files: nothing panics, and tensors take no more than the file has.
//!
//! The first byte says which kind of file the rest is.

#![no_main]

use kvprov_agent::identity;
use std::os::unix::fs::FileExt;

const NAMES: [&str; 5] =
    ["/m/model.safetensors", "/m/model.gguf", "/m/config.json", "/m/tokenizer_config.json", "/m/chat_template.json"];

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((kind, content)) = data.split_first() else { return };
    let Ok(file) = tempfile::tempfile() else { return };
    if file.write_all_at(content, 0).is_err() {
        return;
    }
    let taken = identity::parse(NAMES[usize::from(*kind) % NAMES.len()], &file);
    assert!(taken.is_ok_and(|taken| taken <= content.len() as u64));
});
