//! A real store with and without the agent beside it, in turns, and what the agent used meanwhile.
//!
//! Without the agent each turn measures twice: how far these two lie apart is the noise of the machine, and what the
//! agent adds should not be told from it. The clock is shared with whatever else runs; processor time is the store's.

use super::figure::{Figure, Goal, median};
use super::store::{BURSTS, Cost, PAGE_BYTES, Place, SMALL_BYTES, Store, family, processor};
use crate::lab::live::{Live, Ports};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// From ready until the agent has looked at what runs.
const SETTLE: Duration = Duration::from_secs(3);

/// The store's files are in memory, where there is such a place: the writing back of a disk is no part of either side.
const MEMORY: &str = "/dev/shm";

/// Measures pages of a real size, which have the goal, then small ones, in so many turns. Small ones show what the calls
/// themselves cost: no engine has such pages, so that they have none.
pub(super) fn run(place: &Place, rounds: Option<usize>) -> Result<Vec<Figure>> {
    let mut figures = pages_of(place, rounds, PAGE_BYTES, "9 MiB pages")?;
    figures.extend(pages_of(place, rounds, SMALL_BYTES, "64 KiB pages")?);
    Ok(figures)
}

fn pages_of(place: &Place, rounds: Option<usize>, page_bytes: usize, what: &str) -> Result<Vec<Figure>> {
    println!("{what}");
    let directory = if std::path::Path::new(MEMORY).is_dir() {
        tempfile::tempdir_in(MEMORY)?
    } else {
        tempfile::tempdir()?
    };
    let files = directory.path().join("store");
    std::fs::create_dir(&files)?;
    let mut store = Store::start(place, &files, page_bytes)?;
    store.measure().context("warming up")?;
    let rounds = rounds.unwrap_or(ROUNDS);
    let mut turns = Vec::new();
    let mut shares: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        let own = directory.path().join(format!("turn-{round}"));
        std::fs::create_dir(&own)?;
        let mut beside = |store: &mut Store| with_agent(place, &own, store, &mut shares);
        // Who comes first changes, so that what drifts favours nobody.
        let turn = if round % 2 == 0 {
            let without = [store.measure()?, store.measure()?];
            (without, beside(&mut store)?)
        } else {
            let with = beside(&mut store)?;
            ([store.measure()?, store.measure()?], with)
        };
        print_turn(round, &turn);
        turns.push(turn);
    }
    println!(
        "{rounds} turns of {BURSTS} bursts of {} sets and gets, the burst at the fastest tenth; medians of the turns. The band: without the agent, one to the other.",
        store.pages()
    );
    let mut figures = Vec::new();
    let ways: [(&str, Way); 2] = [
        ("rate by the clock", |cost| 1.0 / cost.clock),
        ("rate by processor time", |cost| 1.0 / cost.processor),
    ];
    for (name, rate) in ways {
        let band = turns.iter().map(|([first, second], _)| (rate(first) / rate(second)).ln().abs());
        let band = band.fold(0.0, f64::max).exp();
        let ratio =
            median(turns.iter().map(|([a, b], with)| rate(with) / f64::midpoint(rate(a), rate(b))).collect());
        let name = format!("hicache, {what}: {name}, with the agent to without");
        let goal = if page_bytes == PAGE_BYTES { Goal::Between(1.0 / band, band) } else { Goal::None };
        println!("{name}: the band is {:.3} to {band:.3}", 1.0 / band);
        figures.push(Figure::new(name, ratio, "x", goal));
    }
    for (name, shares) in shares {
        let name = format!("own cost, {what}: {name}");
        figures.push(Figure::new(name, median(shares) * 100.0, "% core", Goal::None));
    }
    Ok(figures)
}

/// One way to measure a cost.
type Way = fn(&Cost) -> f64;

fn print_turn(round: usize, ([first, second], with): &([Cost; 2], Cost)) {
    let show = |cost: &Cost| format!("{:.1} us ({:.1} us)", cost.clock * 1e6, cost.processor * 1e6);
    println!(
        "turn {}: a call takes {} and {} without the agent, {} with it",
        round + 1,
        show(first),
        show(second),
        show(with)
    );
}

/// Measures beside a kvprov, and notes which share of a core its processes took.
fn with_agent(
    place: &Place,
    directory: &std::path::Path,
    store: &mut Store,
    shares: &mut BTreeMap<String, Vec<f64>>,
) -> Result<Cost> {
    let mut live = Live::start(&place.binary, directory, None, Ports::Free)?;
    std::thread::sleep(SETTLE);
    let processes = family(live.pid())?;
    let before: Vec<f64> = processes.iter().map(|(_, pid)| processor(*pid)).collect::<Result<_>>()?;
    let events = kernel_events(&live)?;
    let begun = Instant::now();
    let cost = store.measure()?;
    let seconds = begun.elapsed().as_secs_f64();
    for ((name, pid), before) in processes.iter().zip(before) {
        shares.entry(name.clone()).or_default().push((processor(*pid)? - before) / seconds);
    }
    // The figures are of the last second.
    std::thread::sleep(Duration::from_secs(1));
    let events = kernel_events(&live)? - events;
    let calls = (2 * store.pages() * BURSTS) as f64;
    println!("    the agent took {:.1} records for a call of the store", events / calls);
    if events < calls {
        bail!("the agent did not watch the store: {events} records for {calls} calls");
    }
    live.stop()?;
    Ok(cost)
}

/// Records that the agent took from the kernel programs so far.
fn kernel_events(live: &Live) -> Result<f64> {
    let page = live.agent_page("/metrics")?;
    let values = page.lines().filter(|line| {
        line.starts_with("kvprov_kernel_events_total{") && line.contains("outcome=\"delivered\"")
    });
    Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}
