//! How often is somebody known already? What is counted of answers about tokens, under upstream's names
//! (authentication/token/cache/stats.go).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Verdict;
use crate::metrics::{Timings, head};

/// Upper bounds in seconds.
const BOUNDS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// What is counted.
pub(super) struct CacheCounts {
    /// Questions whose answer was known, and those whose was not.
    requests: [Timings; 2],
    /// Answers of others, and failures to get one.
    fetched: [AtomicU64; 2],
    fetching: AtomicI64,
    blocked: AtomicI64,
}

impl Default for CacheCounts {
    fn default() -> CacheCounts {
        CacheCounts {
            requests: [Timings::new(&BOUNDS), Timings::new(&BOUNDS)],
            fetched: Default::default(),
            fetching: AtomicI64::default(),
            blocked: AtomicI64::default(),
        }
    }
}

/// Counted for as long as it is held.
pub(super) struct Counted<'a>(&'a AtomicI64);

impl<'a> Counted<'a> {
    fn new(gauge: &'a AtomicI64) -> Counted<'a> {
        gauge.fetch_add(1, Relaxed);
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl CacheCounts {
    /// A question was answered, after so long.
    pub(super) fn answered(&self, is_known: bool, took: Duration) {
        self.requests[usize::from(!is_known)].observe(took);
    }

    /// Somebody waits for an answer of others.
    pub(super) fn blocked(&self) -> Counted<'_> {
        Counted::new(&self.blocked)
    }

    /// Lets others answer.
    pub(super) async fn fetch(&self, ask: impl Future<Output = Verdict>) -> Verdict {
        let _counted = Counted::new(&self.fetching);
        let verdict = ask.await;
        self.fetched[usize::from(verdict.is_err())].fetch_add(1, Relaxed);
        verdict
    }

    /// In Prometheus' text form.
    pub(super) fn write(&self, out: &mut String) {
        let name = |what: &str| format!("authentication_token_cache_{what}");
        let requests = || ["hit", "miss"].into_iter().zip(&self.requests);
        let took = name("request_duration_seconds");
        head(out, &took, "histogram", "How long it took to answer.");
        requests()
            .for_each(|(word, timings)| timings.write(out, &took, &format!("status=\"{word}\"")));
        let counts = requests().map(|(word, timings)| (word, timings.count() as i64));
        write(
            out,
            &name("request_total"),
            "counter",
            "Questions whose token it is.",
            counts,
        );
        let fetched = ["ok", "error"].into_iter().zip(&self.fetched);
        let fetched = fetched.map(|(word, count)| (word, count.load(Relaxed) as i64));
        write(
            out,
            &name("fetch_total"),
            "counter",
            "Questions that others were asked.",
            fetched,
        );
        let gauges = [("in_flight", &self.fetching), ("blocked", &self.blocked)];
        let active = gauges
            .into_iter()
            .map(|(word, gauge)| (word, gauge.load(Relaxed)));
        write(
            out,
            &name("active_fetch_count"),
            "gauge",
            "Questions that wait for others.",
            active,
        );
    }
}

fn write<'a>(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    counts: impl Iterator<Item = (&'a str, i64)>,
) {
    head(out, name, kind, help);
    for (status, count) in counts {
        let _ = writeln!(out, "{name}{{status=\"{status}\"}} {count}");
    }
}
