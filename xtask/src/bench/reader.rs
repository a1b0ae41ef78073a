//! From a record of the kernel programs to an observation: `agent/benches/kernel_events.rs` measures.

use super::bench;
use super::figure::{Figure, Goal};
use anyhow::Result;

/// Share of a core that 100,000 records a second may take, in percent.
const GOAL: f64 = 2.0;

/// Measures.
pub(super) fn run() -> Result<Vec<Figure>> {
    let printed = bench(("kvprov-agent", "kernel_events"), None, &[])?;
    let printed = String::from_utf8_lossy(&printed);
    println!("{printed}");
    Ok(printed.lines().filter_map(figure).collect())
}

/// Of the mix, which is what a store's records are like.
fn figure(line: &str) -> Option<Figure> {
    let (name, costs) = line.split_once(": ").filter(|(name, _)| *name == "the mix")?;
    let with = if costs.contains("with the journal") { "with its journal" } else { "without a journal" };
    let share = costs.rsplit_once("; ")?.1.split_once(" %")?.0;
    let name = format!("reader, {name} at 100,000 records/s, {with}");
    Some(Figure::new(name, share.parse().ok()?, "% core", Goal::AtMost(GOAL)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_mix_is_read() {
        let line = "the mix: 8 reads, with the journal: 180 ns an event, 0.50 allocations, 0.002 observations; 1.80 % of a core at 100,000/s";
        let read = figure(line).map(|figure| (figure.name.contains("with its journal"), figure.value));
        assert_eq!(read, Some((true, 1.8)));
        assert_eq!(figure("reads: 180 ns an event; 1.80 % of a core"), None);
    }
}
