//! Answers of Prometheus' query API, which people save in place of a page: `/api/v1/query` gives one value a series,
//! `/api/v1/query_range` one for each step.
//!
//! Source: Prometheus, HTTP API, "Expression queries". An expression without a metric's name is no counter and is left out.

use super::recorded;
use kvprov_model::clock::WallTime;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Pages that an answer is turned into at most.
const MAX_PAGES: usize = 4096;
/// Under this name the pages are those of one endpoint.
const ENDPOINT: &str = "query-api";

#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    value: Option<Sample>,
    #[serde(default)]
    values: Vec<Sample>,
}

/// Seconds since the epoch, and a number as text.
type Sample = (f64, String);

/// The same as pages of Prometheus' text format, each behind its mark; `None`: it is no such answer.
pub fn pages(text: &[u8]) -> Option<Vec<u8>> {
    let begin = text.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if text.get(begin) != Some(&b'{') {
        return None;
    }
    let answer: Answer = serde_json::from_slice(text).ok()?;
    if answer.status != "success" {
        return None;
    }
    let mut pages: BTreeMap<WallTime, String> = BTreeMap::new();
    for Series { mut metric, value, values } in answer.data.result {
        let Some(name) = metric.remove("__name__") else { continue };
        let labels: Vec<String> =
            metric.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        for (seconds, number) in value.into_iter().chain(values) {
            let Some(at) = WallTime::from_unix_seconds(seconds) else { continue };
            if pages.len() >= MAX_PAGES && !pages.contains_key(&at) {
                continue;
            }
            // Writing to memory does not fail.
            let _ = writeln!(pages.entry(at).or_default(), "{name}{{{}}} {number}", labels.join(","));
        }
    }
    let mut written = Vec::new();
    for (at, page) in pages {
        recorded::write(ENDPOINT, at, &page, &mut written);
    }
    Some(written)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: &str) -> Option<String> {
        pages(answer.as_bytes()).map(|pages| String::from_utf8_lossy(&pages).into_owned())
    }

    #[test]
    fn a_vector_is_one_page() {
        let answer = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"a_total","model":"x\"y"},"value":[1778328000,"3"]},
            {"metric":{},"value":[1778328000,"0.5"]}]}}"#;
        let expected =
            "# kvprov page query-api at 2026-05-09T12:00:00.000000000Z\na_total{model=\"x\\\"y\"} 3\n";
        assert_eq!(text(answer).as_deref(), Some(expected));
    }

    #[test]
    fn a_matrix_is_a_page_for_each_step() {
        let answer = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"__name__":"a_total"},"values":[[1778328000,"3"],[1778328015.5,"4"]]},
            {"metric":{"__name__":"b_total"},"values":[[1778328000,"1"]]}]}}"#;
        let text = text(answer).unwrap_or_default();
        assert_eq!(text.matches("# kvprov page").count(), 2);
        assert!(
            text.contains("a_total{} 3\nb_total{} 1\n# kvprov page query-api at 2026-05-09T12:00:15.5"),
            "{text}"
        );
    }

    #[test]
    fn anything_else_is_none() {
        for other in ["", "a_total 3\n", "{}", r#"{"status":"error","data":{"result":[]}}"#, "{\"a\":1"] {
            assert_eq!(text(other), None, "{other}");
        }
    }
}
