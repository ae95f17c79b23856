//! Results: a table row after each workload, or one JSON document at the end.

use std::time::Duration;

use serde::Serialize;

use super::meter::MeterReading;

/// The result of one workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadOutcome {
    pub name: String,
    /// The size of the collection, in a scale workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    pub operations: u64,
    pub seconds: f64,
    pub operations_per_second: f64,
    pub p50_us: u32,
    pub p99_us: u32,
    /// Bytes of the response body per operation, compressed if the response is.
    pub bytes_per_operation: u64,
    /// Server CPU per operation; of a watch per delivery, without the update.
    pub cpu_us_per_op: Option<f64>,
    /// CPU of the load generator per operation, which the server lacks if they share cores.
    pub client_cpu_us_per_op: Option<f64>,
    /// Resident memory of the server after the workload.
    pub rss_bytes: Option<u64>,
}

impl WorkloadOutcome {
    /// The outcome of one operation per latency, in microseconds.
    pub(super) fn new(
        name: impl Into<String>,
        reading: &MeterReading,
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

    /// The outcome of `operations` that are measured as one.
    pub(super) fn from_total(name: &str, reading: &MeterReading, operations: u64) -> Self {
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

/// The nearest-rank percentile; 0 if there are no values.
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// The time of a server from exec to ready.
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

/// A workload that failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadFailure {
    pub name: String,
    pub message: String,
}

/// All results of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct BenchReport {
    pub server: String,
    /// The server's `gitVersion`.
    pub version: String,
    pub clients: usize,
    pub connections: usize,
    pub objects: u64,
    /// The server's CPU without requests, which is part of every figure below.
    pub idle_cpu_us_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_up: Option<StartUp>,
    pub outcomes: Vec<WorkloadOutcome>,
    pub failures: Vec<WorkloadFailure>,
    #[serde(skip)]
    pub json: bool,
}

impl BenchReport {
    /// Whether there are no results.
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.is_empty() && self.failures.is_empty() && self.start_up.is_none()
    }

    /// Prints the heading of the table.
    pub(super) fn print_heading(&self) {
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
        println!(
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
        );
    }

    pub(super) fn add(&mut self, outcome: WorkloadOutcome) {
        if !self.json {
            println!(
                "{:<24} {:>9} {:>10.1} {:>9.3} {:>9.3} {:>11} {:>11} {:>10} {:>9}",
                outcome.name,
                outcome.operations,
                outcome.operations_per_second,
                millis(outcome.p50_us),
                millis(outcome.p99_us),
                or_dash(outcome.cpu_us_per_op),
                or_dash(outcome.client_cpu_us_per_op),
                outcome.bytes_per_operation,
                or_dash(outcome.rss_bytes.map(mebibytes)),
            );
        }
        self.outcomes.push(outcome);
    }

    pub(super) fn fail(&mut self, name: String, message: String) {
        if !self.json {
            println!("{name:<24} failed: {message}");
        }
        self.failures.push(WorkloadFailure { name, message });
    }

    /// Prints the JSON document, or the summaries after the table.
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
        print!("{}", self.scale_table());
    }

    /// A line per size, a column group per verb: in a flat column the cost does not grow with the store.
    fn scale_table(&self) -> String {
        let scaled: Vec<&WorkloadOutcome> = self
            .outcomes
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
            table += &format!(" | {:>9}\n", or_dash(resident.map(mebibytes)));
        }
        table
    }
}

pub(crate) fn millis(micros: u32) -> f64 {
    f64::from(micros) / 1e3
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
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

    fn outcome(objects: Option<u64>) -> WorkloadOutcome {
        let reading = MeterReading {
            elapsed: Duration::from_secs(2),
            server_cpu: Some(Duration::from_micros(400)),
            own_cpu: None,
            resident: Some(3 << 20),
        };
        WorkloadOutcome {
            objects,
            ..WorkloadOutcome::new("x", &reading, vec![3000, 1000, 2000, 4000], 4096)
        }
    }

    #[test]
    fn costs_are_divided_by_operations() {
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
        let scale_table = |sizes: &[Option<u64>]| {
            let outcomes = sizes.iter().map(|size| outcome(*size)).collect();
            let report = BenchReport {
                outcomes,
                ..BenchReport::default()
            };
            report.scale_table()
        };
        assert_eq!(scale_table(&[None]), "");
        let table = scale_table(&[10, 10, 10, 20, 20, 20].map(Some));
        assert_eq!(table.trim().lines().count(), 3, "{table}");
    }

    #[test]
    fn a_start_up_reports_minimum_and_median() {
        let start_up = StartUp::new("x", &[30, 10, 20].map(Duration::from_millis));
        assert_eq!((start_up.min_ms, start_up.median_ms), (10.0, 20.0));
    }
}
