//! How snapshots of metrics become increases.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kvprov_agent::metrics::{Meanings, MetricsReader};
use kvprov_agent::source::{Place, SourceContext};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Body, Counters, Observation};
use kvprov_packs::{MetricType, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// `hits_total` and `x_count{kind="good"}` are counters, `used` a gauge, `cache_info` holds facts.
struct Lab;

impl Meanings for Lab {
    fn meaning(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        _: Option<&Version>,
    ) -> Option<(&str, MetricType)> {
        match name {
            "hits_total" => Some(("prefix.hits", MetricType::Counter)),
            "x_count" if labels.contains(&("kind", "good")) => {
                Some(("transfers.succeeded", MetricType::Counter))
            }
            "used" => Some(("store.used_bytes.level", MetricType::Gauge)),
            _ => None,
        }
    }

    fn facts(&self, name: &str, labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        (name == "cache_info")
            .then(|| labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }
}

fn read(pages: &[(i64, &str)]) -> (Vec<Observation>, kvprov_agent::metrics::MetricsCounts) {
    let mut found = Vec::new();
    let mut reader = MetricsReader::new(&Lab, None);
    for (index, (at, page)) in pages.iter().enumerate() {
        let stream = format!("m{index}.prom");
        let source = SourceContext {
            node: NodeId("n".to_owned()),
            worker: Some("w".into()),
            instance: stream.clone(),
            stream,
            generation: 0,
        };
        let at = (*at >= 0).then_some(WallTime(at * SECOND));
        let place = Place { position: 1, offset: 0 };
        reader.snapshot(at, &source, place, page.as_bytes(), &mut |observation| found.push(observation));
    }
    (found, reader.counts().clone())
}

fn counters(pages: &[(i64, &str)]) -> Vec<Counters> {
    let (found, _) = read(pages);
    found
        .into_iter()
        .filter_map(|observation| match observation.body {
            Body::Counters(counters) => Some(counters),
            _ => None,
        })
        .collect()
}

#[test]
fn the_first_snapshot_gives_totals_and_the_second_increases() {
    let found = counters(&[(10, "hits_total 5\n"), (20, "hits_total 8\n")]);
    assert_eq!(found[0].since_wall_ns, None);
    assert!(found[0].values.is_empty());
    assert_eq!(found[0].totals["prefix.hits"], 5.0);
    assert_eq!(found[1].since_wall_ns, Some(10 * SECOND));
    assert_eq!(found[1].values["prefix.hits"], 3.0);
    assert_eq!((found[1].totals["prefix.hits"], found[1].resets), (8.0, None));
}

#[test]
fn series_of_one_meaning_are_added_up_and_levels_are_the_largest() {
    let page = |a, b| {
        format!(
            "hits_total{{engine=\"0\"}} {a}\nhits_total{{engine=\"1\"}} {b}\nused{{r=\"0\"}} {a}\nused{{r=\"1\"}} {b}\n"
        )
    };
    let found = counters(&[(1, &page(1, 10)), (2, &page(2, 30))]);
    assert_eq!(found[1].values["prefix.hits"], 21.0);
    assert_eq!(found[1].values["store.used_bytes.level"], 30.0);
    assert_eq!(found[1].totals["store.used_bytes.level"], 30.0);
}

#[test]
fn a_label_that_decides_the_meaning_is_respected() {
    let found = counters(&[(1, "x_count{kind=\"good\"} 1\nx_count{kind=\"bad\"} 100\n")]);
    assert_eq!(found[0].totals, BTreeMap::from([("transfers.succeeded".to_owned(), 1.0)]));
}

#[test]
fn a_counter_that_fell_began_anew() {
    let found = counters(&[(1, "hits_total 50\n"), (2, "hits_total 8\n")]);
    assert_eq!((found[1].values["prefix.hits"], found[1].resets), (8.0, Some(1)));
}

#[test]
fn a_process_that_started_anew_hides_no_increase() {
    let page = |start, hits| format!("process_start_time_seconds {start}\nhits_total {hits}\n");
    let found = counters(&[(1, &page(100, 5)), (2, &page(200, 7))]);
    assert_eq!((found[1].values["prefix.hits"], found[1].resets), (7.0, Some(1)));
}

#[test]
fn a_series_that_was_born_between_two_snapshots_counts_whole() {
    let before = "# TYPE other counter\nother 1\n";
    let after = "other 1\nhits_total{model=\"m\"} 40\n";
    assert_eq!(counters(&[(1, before), (2, after)])[0].values["prefix.hits"], 40.0);
}

#[test]
fn a_series_that_a_cut_page_did_not_show_does_not_jump() {
    let found = counters(&[(1, "other 1\nhits_tot"), (2, "other 1\nhits_total 40\n")]);
    assert_eq!(found[0].values["prefix.hits"], 0.0);
}

#[test]
fn the_first_page_of_a_second_endpoint_is_no_jump() {
    let engine = "process_start_time_seconds 1\na_total 1\nb_total 1\nhits_total 5\n";
    let server = "process_start_time_seconds 1\nc_total 1\nd_total 1\nx_count{kind=\"good\"} 900\n";
    let found = counters(&[(1, engine), (2, server), (3, engine), (4, server)]);
    assert!(found[1].values.is_empty(), "{found:?}");
    assert_eq!(found[2].values["prefix.hits"], 0.0);
    assert_eq!(found[3].values["transfers.succeeded"], 0.0);
    assert_eq!(found[3].since_wall_ns, Some(2 * SECOND));
}

#[test]
fn two_snapshots_of_one_time_and_a_step_back_give_no_increases() {
    let (found, counts) = read(&[(5, "hits_total 1\n"), (5, "hits_total 9\n"), (3, "hits_total 7\n")]);
    let values =
        found.iter().filter(|o| matches!(&o.body, Body::Counters(c) if !c.values.is_empty())).count();
    assert_eq!(values, 0);
    assert_eq!(counts.losses.of("two snapshots at one time"), 1);
    assert_eq!(counts.losses.of("snapshot before the last one"), 1);
}

#[test]
fn without_a_time_there_are_totals_only() {
    let (found, counts) = read(&[(-1, "hits_total 1\n"), (-1, "hits_total 5\n")]);
    assert_eq!(found.len(), 2);
    assert_eq!(counts.losses.of("snapshot without a time"), 2);
    let found = counters(&[(-1, "hits_total 1 1000\n"), (-1, "hits_total 5 2000\n")]);
    assert_eq!(found[1].values["prefix.hits"], 4.0);
}

#[test]
fn what_no_counter_holds_is_counted_and_skipped() {
    let (found, counts) =
        read(&[(1, "hits_total{a=\"1\"} NaN\nhits_total{a=\"2\"} -3\nhits_total{a=\"3\"} 2\n")]);
    assert_eq!(counts.losses.of("value that no counter has"), 2);
    let Body::Counters(counters) = &found[0].body else { panic!("{found:?}") };
    assert_eq!(counters.totals["prefix.hits"], 2.0);
}

#[test]
fn facts_of_an_info_metric_are_told_once_and_again_when_they_change() {
    let pages = [
        (1, "cache_info{block_size=\"16\"} 1\n"),
        (2, "cache_info{block_size=\"16\"} 1\n"),
        (3, "cache_info{block_size=\"32\"} 1\n"),
    ];
    let (found, _) = read(&pages);
    let sizes: Vec<_> = found
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::Worker(worker) => worker.facts.get("block_size").cloned(),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, ["16", "32"]);
}

#[test]
fn labels_are_told_where_all_series_agree() {
    let page = "hits_total{engine=\"0\",model_name=\"m\"} 1\nhits_total{engine=\"1\",model_name=\"m\"} 1\n";
    assert_eq!(counters(&[(1, page)])[0].labels, BTreeMap::from([("model_name".to_owned(), "m".to_owned())]));
}

proptest! {
    #[test]
    fn an_increase_is_never_negative(
        pages in proptest::collection::vec(
            (0i64..6, proptest::collection::vec((0u8..4, -1e3f64..1e9, any::<bool>()), 0..6), any::<bool>()),
            0..8
        )
    ) {
        let texts: Vec<(i64, String)> = pages
            .iter()
            .map(|(at, samples, cut)| {
                let mut text: String = samples
                    .iter()
                    .map(|(rank, value, _)| format!("hits_total{{r=\"{rank}\"}} {value}\n"))
                    .collect();
                if *cut { text.pop(); text.pop(); }
                (*at, text)
            })
            .collect();
        let pages: Vec<(i64, &str)> = texts.iter().map(|(at, text)| (*at, text.as_str())).collect();
        for found in counters(&pages) {
            prop_assert!(found.values.values().all(|value| *value >= 0.0), "{found:?}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic(page in proptest::collection::vec(any::<u8>(), 0..300)) {
        let page = String::from_utf8_lossy(&page).into_owned();
        let _ = read(&[(1, &page), (2, &page)]);
    }
}
