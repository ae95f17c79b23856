//! What was measured: a row per workload while it runs, or one JSON document at the end.

use std::time::Duration;

use serde::Serialize;

use super::meter::Reading;

/// The result of one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub name: String,
    /// How many objects the collection held, in a scale workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    pub operations: u64,
    pub seconds: f64,
    pub operations_per_second: f64,
    pub p50_us: u32,
    pub p99_us: u32,
    /// Bytes of answer per operation, as they came over the wire (inside TLS).
    pub bytes_per_operation: u64,
    /// Server CPU per operation. For a watch: per delivery, the update itself not counted.
    pub cpu_us_per_op: Option<f64>,
    /// CPU of the load generator per operation: what it took from the server, if they share cores.
    pub client_cpu_us_per_op: Option<f64>,
    /// Resident memory of the server after the workload.
    pub rss_bytes: Option<u64>,
}

impl Outcome {
    /// One operation per latency (in microseconds).
    pub(super) fn new(
        name: impl Into<String>,
        reading: &Reading,
        mut latencies: Vec<u32>,
        bytes: u64,
    ) -> Self {
        latencies.sort_unstable();
        let operations = latencies.len() as u64;
        let share = |cpu: Duration| micros(cpu) / operations.max(1) as f64;
        let seconds = reading.elapsed.as_secs_f64();
        Self {
            name: name.into(),
            objects: None,
            operations,
            seconds,
            operations_per_second: operations as f64 / seconds,
            p50_us: percentile(&latencies, 50),
            p99_us: percentile(&latencies, 99),
            bytes_per_operation: bytes / operations.max(1),
            cpu_us_per_op: reading.server_cpu.map(share),
            client_cpu_us_per_op: reading.own_cpu.map(share),
            rss_bytes: reading.resident,
        }
    }
}

impl Outcome {
    /// Something whole, of `operations` parts, that took as long as was measured.
    pub(super) fn whole(name: &str, reading: &Reading, operations: u64) -> Self {
        let latency = reading.elapsed.as_micros().try_into().unwrap_or(u32::MAX);
        let outcome = Self::new(name, reading, vec![latency], 0);
        let share = |cpu: Option<f64>| cpu.map(|cpu| cpu / operations.max(1) as f64);
        Self {
            operations,
            operations_per_second: operations as f64 / outcome.seconds,
            cpu_us_per_op: share(outcome.cpu_us_per_op),
            client_cpu_us_per_op: share(outcome.client_cpu_us_per_op),
            ..outcome
        }
    }
}

/// The smallest value that `percent` of all values do not exceed (nearest rank); 0 of nothing.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// How long a server takes from exec to ready.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StartUp {
    pub command: String,
    pub runs_ms: Vec<f64>,
    pub min_ms: f64,
    pub median_ms: f64,
}

impl StartUp {
    pub(super) fn new(command: &str, runs: &[Duration]) -> Self {
        let runs_ms: Vec<f64> = runs.iter().map(|run| micros(*run) / 1e3).collect();
        let mut sorted = runs_ms.clone();
        sorted.sort_by(f64::total_cmp);
        Self {
            command: command.to_owned(),
            min_ms: sorted.first().copied().unwrap_or(0.0),
            median_ms: sorted.get(sorted.len() / 2).copied().unwrap_or(0.0),
            runs_ms,
        }
    }
}

/// A workload that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    pub name: String,
    pub message: String,
}

/// Everything that one run found out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub server: String,
    /// What the server says it is (`gitVersion`).
    pub version: String,
    pub clients: usize,
    pub connections: usize,
    pub objects: u64,
    /// What the server uses when nobody asks anything: part of every figure below.
    pub idle_cpu_us_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_up: Option<StartUp>,
    pub outcomes: Vec<Outcome>,
    pub failures: Vec<Failure>,
    #[serde(skip)]
    pub json: bool,
}

impl Report {
    /// Whether there is nothing to tell.
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.failures.is_empty() && self.start_up.is_none()
    }

    /// Says what is measured, before the first row.
    pub(super) fn head(&self) {
        if self.json {
            return;
        }
        println!(
            "{} at {}, {} clients",
            self.version, self.server, self.clients
        );
        if let Some(idle) = self.idle_cpu_us_per_second {
            println!("idle: {:.2} % of a core", idle / 1e4);
        }
        println!("{}", heading());
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        if !self.json {
            println!("{}", row(&outcome));
        }
        self.outcomes.push(outcome);
    }

    pub(super) fn fail(&mut self, name: String, message: String) {
        if !self.json {
            println!("{name:<24} failed: {message}");
        }
        self.failures.push(Failure { name, message });
    }

    /// What only makes sense at the end: the JSON document, or the summaries.
    pub(super) fn finish(&self) {
        if self.json {
            println!(
                "{}",
                serde_json::to_string_pretty(self).expect("a report is JSON")
            );
            return;
        }
        if let Some(start_up) = &self.start_up {
            println!(
                "start-up to /readyz: min {:.1} ms, median {:.1} ms",
                start_up.min_ms, start_up.median_ms
            );
        }
        print!("{}", scale_table(&self.outcomes));
    }
}

fn heading() -> String {
    format!(
        "{:<24} {:>9} {:>10} {:>9} {:>9} {:>11} {:>11} {:>10} {:>9}",
        "workload",
        "ops",
        "ops/s",
        "p50 ms",
        "p99 ms",
        "server µs",
        "client µs",
        "bytes/op",
        "RSS MiB"
    )
}

fn row(outcome: &Outcome) -> String {
    format!(
        "{:<24} {:>9} {:>10.1} {:>9.3} {:>9.3} {:>11} {:>11} {:>10} {:>9}",
        outcome.name,
        outcome.operations,
        outcome.operations_per_second,
        millis(outcome.p50_us),
        millis(outcome.p99_us),
        or_dash(outcome.cpu_us_per_op),
        or_dash(outcome.client_cpu_us_per_op),
        outcome.bytes_per_operation,
        or_dash(
            outcome
                .rss_bytes
                .map(|bytes| bytes as f64 / f64::from(1 << 20))
        ),
    )
}

/// A line per size, a column group per verb: a flat column is a cost that does not grow with the store.
fn scale_table(outcomes: &[Outcome]) -> String {
    let scaled: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.objects.is_some())
        .collect();
    if scaled.is_empty() {
        return String::new();
    }
    let mut table = format!("\n{:>10}", "objects");
    for verb in ["create", "get", "page"] {
        table += &format!(
            " | {:>9} {:>9} {:>9} {:>11}",
            format!("{verb}/s"),
            "p50 ms",
            "p99 ms",
            "server µs"
        );
    }
    table += &format!(" | {:>9}\n", "RSS MiB");
    for line in scaled.chunk_by(|a, b| a.objects == b.objects) {
        table += &format!("{:>10}", line[0].objects.unwrap_or_default());
        for outcome in line {
            let (p50, p99) = (millis(outcome.p50_us), millis(outcome.p99_us));
            let cpu = or_dash(outcome.cpu_us_per_op);
            table += &format!(
                " | {:>9.1} {p50:>9.3} {p99:>9.3} {cpu:>11}",
                outcome.operations_per_second
            );
        }
        let resident = line.last().and_then(|outcome| outcome.rss_bytes);
        table += &format!(
            " | {:>9}\n",
            or_dash(resident.map(|bytes| bytes as f64 / f64::from(1 << 20)))
        );
    }
    table
}

fn millis(micros: u32) -> f64 {
    f64::from(micros) / 1e3
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(
            (percentile(&hundred, 50), percentile(&hundred, 99)),
            (50, 99)
        );
        assert_eq!(
            (percentile(&[1, 2, 3], 50), percentile(&[1, 2, 3], 99)),
            (2, 3)
        );
        assert_eq!((percentile(&[7], 50), percentile(&[], 99)), (7, 0));
    }

    fn outcome(objects: Option<u64>) -> Outcome {
        let reading = Reading {
            elapsed: Duration::from_secs(2),
            server_cpu: Some(Duration::from_micros(400)),
            own_cpu: None,
            resident: Some(3 << 20),
        };
        Outcome {
            objects,
            ..Outcome::new("x", &reading, vec![3000, 1000, 2000, 4000], 4096)
        }
    }

    #[test]
    fn costs_are_shared_among_operations() {
        let outcome = outcome(None);
        assert_eq!(
            (outcome.operations, outcome.operations_per_second),
            (4, 2.0)
        );
        assert_eq!(
            (outcome.p50_us, outcome.p99_us, outcome.bytes_per_operation),
            (2000, 4000, 1024)
        );
        assert_eq!(
            (outcome.cpu_us_per_op, outcome.client_cpu_us_per_op),
            (Some(100.0), None)
        );
    }

    #[test]
    fn a_scale_table_has_a_line_per_size() {
        assert_eq!(scale_table(&[outcome(None)]), "");
        let outcomes: Vec<Outcome> = [10, 10, 10, 20, 20, 20]
            .map(|size| outcome(Some(size)))
            .into();
        let table = scale_table(&outcomes);
        assert_eq!(table.trim().lines().count(), 3, "{table}");
    }

    #[test]
    fn a_start_up_reports_its_fastest_and_its_middle_run() {
        let start_up = StartUp::new("x", &[30, 10, 20].map(Duration::from_millis));
        assert_eq!((start_up.min_ms, start_up.median_ms), (10.0, 20.0));
    }
}
