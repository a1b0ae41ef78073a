//! Rules on the text of files: length, module docs, unfinished work, traces of one machine.

use super::at;
use crate::tree::SourceFile;

/// Longest file, in lines. A file is one thing; this is where it certainly became two.
const MAX_LINES: usize = 600;

/// No Rust file is longer than [`MAX_LINES`].
pub(super) fn length(sources: &[SourceFile]) -> Vec<String> {
    sources
        .iter()
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{}: {lines} lines, at most {MAX_LINES}; split it by idea", file.path))
        .collect()
}

/// Every module opens with what it is for.
pub(super) fn module_docs(sources: &[SourceFile]) -> Vec<String> {
    sources
        .iter()
        .filter(|file| file.path.contains("/src/") && !file.is_test())
        .filter(|file| !opens_with_docs(&file.text))
        .map(|file| format!("{}: opens without module docs; say what it is for and its invariant", file.path))
        .collect()
}

/// The files with unsafe code: memory that the kernel writes, by a mapping and by a call.
const SHARE_MEMORY_WITH_THE_KERNEL: [&str; 2] = ["agent-common/src/ring.rs", "agent-common/src/verity.rs"];

/// Nothing is left for later in the code; what is missing has an issue.
pub(super) fn unfinished(sources: &[SourceFile]) -> Vec<String> {
    // Put together, so that this file does not break its own rule.
    let words =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("(under ", "construction)")];
    lines_with(sources, &words, "left for later; finish it or open an issue")
}

/// No path of the machine on which something was written.
pub(super) fn machine_paths(files: &[SourceFile]) -> Vec<String> {
    let words = [
        concat!("/work", "/main"),
        concat!("/work", "/shared"),
        concat!("/tmp", "/wt-"),
        concat!("/tmp", "/target-"),
        concat!("/root", "/.cargo"),
        concat!("\"/ho", "me/"),
    ];
    lines_with(files, &words, "names a path of one machine; use one from the root of the tree")
}

/// Unsafe code stays where memory is shared with the kernel. The kernel programs have a workspace of their own.
pub(super) fn unsafe_code(sources: &[SourceFile]) -> Vec<String> {
    let mut lines = lines_with(
        sources,
        &[concat!("allow(unsafe", "_code")],
        "unsafe code; only memory that the kernel writes needs it",
    );
    lines.retain(|line| !SHARE_MEMORY_WITH_THE_KERNEL.iter().any(|file| line.starts_with(file)));
    lines
}

fn opens_with_docs(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    first.is_some_and(|line| line.starts_with("//!"))
}

fn lines_with(files: &[SourceFile], words: &[&str], message: &str) -> Vec<String> {
    let mut violations = Vec::new();
    for file in files {
        for (line, text) in file.text.lines().enumerate() {
            for word in words.iter().filter(|word| text.contains(**word)) {
                violations.push(format!("{}: {word:?} {message}", at(file, line)));
            }
        }
    }
    violations
}
