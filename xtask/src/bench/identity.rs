//! Hashing model files, beside `sha256sum` and `openssl dgst -sha256`: `agent/benches/identity.rs` measures.

use super::bench;
use super::figure::{Figure, Goal};
use anyhow::Result;

/// What is measured: its name there, its unit and its goal.
const FIGURES: [(&str, &str, Goal); 6] = [
    ("one core, to the faster one", "x", Goal::AtLeast(0.95)),
    ("all cores, to the faster one", "x", Goal::AtLeast(0.95)),
    ("rate, to its limit", "x", Goal::AtMost(1.02)),
    ("page cache of another file that went, MiB", "MiB", Goal::AtMost(1.0)),
    ("page cache that was left behind, MiB", "MiB", Goal::AtMost(1.0)),
    ("memory for 4 GiB more, MiB", "MiB", Goal::AtMost(8.0)),
];

/// Measures.
pub(super) fn run() -> Result<Vec<Figure>> {
    let printed = bench(("kvprov-agent", "identity"), None, &[])?;
    let printed = String::from_utf8_lossy(&printed);
    println!("{printed}");
    Ok(figures(&printed))
}

/// What was not printed was not measured, and meets no goal.
fn figures(printed: &str) -> Vec<Figure> {
    let value = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
    };
    let figure = |(name, unit, goal): (&str, &'static str, Goal)| {
        Figure::new(format!("identity: {name}"), value(name), unit, goal)
    };
    FIGURES.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_by_name_and_what_is_missing_is_no_number() {
        let read = figures("one core, to the faster one: 1.020\nGB/s of one core, kvprov: 1.9\n");
        assert_eq!(read.len(), FIGURES.len());
        assert!((read[0].value - 1.02).abs() < 1e-9 && read[1].value.is_nan());
    }
}
