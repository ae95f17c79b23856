//! `/metrics/resource` of a kubelet: CPU and memory of a node, its pods and their containers, in
//! the Prometheus text format.
//!
//! Kubernetes: pkg/kubelet/metrics/collectors/resource_metrics.go.

use std::fmt::Write as _;
use std::time::Duration;

use crate::agent::NodeUsage;

/// The media type, as promhttp has it.
pub(crate) const CONTENT_TYPE: &str =
    "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

pub(crate) fn write(node: &NodeUsage) -> String {
    let at = node.at;
    let mut text = MetricsText::default();
    let containers = || {
        let pods = node.pods.iter();
        pods.flat_map(|pod| {
            pod.containers.iter().map(move |container| {
                let labels = format!(
                    "{{container=\"{}\",namespace=\"{}\",pod=\"{}\"}}",
                    container.name, pod.namespace, pod.name
                );
                (labels, container)
            })
        })
    };
    let pods = || {
        node.pods.iter().map(|pod| {
            let labels = format!("{{namespace=\"{}\",pod=\"{}\"}}", pod.namespace, pod.name);
            (labels, pod)
        })
    };
    text.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        containers().map(|(labels, container)| (labels, seconds(container.cpu_time), Some(at))),
    );
    text.family(
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        containers().map(|(labels, container)| (labels, container.memory_bytes as f64, Some(at))),
    );
    text.family(
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
        containers().map(|(labels, container)| (labels, seconds(container.started), None)),
    );
    text.family(
        "container_swap_limit_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        containers().filter_map(|(labels, container)| {
            Some((labels, container.swap_limit? as f64, Some(at)))
        }),
    );
    text.family(
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        containers().filter_map(|(labels, container)| {
            Some((labels, container.swap_bytes? as f64, Some(at)))
        }),
    );
    text.family(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        [(String::new(), seconds(node.cpu_time), Some(at))],
    );
    text.family(
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
        [(String::new(), node.memory_bytes as f64, Some(at))],
    );
    text.family(
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        node.swap_bytes
            .map(|swap| (String::new(), swap as f64, Some(at))),
    );
    text.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        pods().map(|(labels, pod)| (labels, seconds(pod.cpu_time), Some(at))),
    );
    text.family(
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
        pods().map(|(labels, pod)| (labels, pod.memory_bytes as f64, Some(at))),
    );
    text.family(
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        pods().filter_map(|(labels, pod)| Some((labels, pod.swap_bytes? as f64, Some(at)))),
    );
    text.family(
        "resource_scrape_error",
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        [(String::new(), 0.0, None)],
    );
    text.into_string()
}

/// Seconds as Prometheus has them.
pub(crate) fn seconds(time: Duration) -> f64 {
    // One division, as in Go, so that the text has no more digits than the nanoseconds.
    time.as_nanos() as f64 / 1e9
}

/// Metric families in the Prometheus text format.
#[derive(Default)]
pub(crate) struct MetricsText(String);

impl MetricsText {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// One metric family: labels, value and timestamp of each sample. A family without samples is
    /// left out; one without a help text continues the one before.
    pub(crate) fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64, Option<Duration>)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        if !help.is_empty() {
            let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        for (labels, value, at) in samples {
            let _ = write!(self.0, "{name}{labels} {}", go_float(value));
            if let Some(at) = at {
                let _ = write!(self.0, " {}", at.as_millis());
            }
            self.0.push('\n');
        }
    }
}

/// A number as Go's `strconv.FormatFloat(value, 'g', -1, 64)` formats it.
fn go_float(value: f64) -> String {
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{PodUsageSample, RunningContainer};

    #[test]
    fn the_text_is_that_of_a_kubelet() {
        let container = RunningContainer {
            name: "web".into(),
            started: Duration::from_millis(1_700_000_000_005),
            cpu_time: Duration::from_nanos(4_710_169_000),
            memory_bytes: 19_070_976,
            swap_bytes: Some(4096),
            swap_limit: Some(8192),
        };
        let pod = PodUsageSample {
            namespace: "default".into(),
            name: "web-0".into(),
            cpu_time: Duration::from_nanos(4_710_169_000),
            memory_bytes: 19_070_976,
            swap_bytes: Some(4096),
            containers: vec![container],
        };
        let node = NodeUsage {
            at: Duration::from_millis(1_700_000_060_125),
            cpu_time: Duration::from_secs(1_234_567),
            memory_bytes: 99_999,
            swap_bytes: Some(12_288),
            pods: vec![pod],
        };
        let expected = r#"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="web",namespace="default",pod="web-0"} 4.710169 1700000060125
# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="web",namespace="default",pod="web-0"} 1.9070976e+07 1700000060125
# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="web",namespace="default",pod="web-0"} 1.7000000000049999e+09
# HELP container_swap_limit_bytes [ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="web",namespace="default",pod="web-0"} 8192 1700000060125
# HELP container_swap_usage_bytes [ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="web",namespace="default",pod="web-0"} 4096 1700000060125
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 1.234567e+06 1700000060125
# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 99999 1700000060125
# HELP node_swap_usage_bytes [ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems
# TYPE node_swap_usage_bytes gauge
node_swap_usage_bytes 12288 1700000060125
# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="default",pod="web-0"} 4.710169 1700000060125
# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="web-0"} 1.9070976e+07 1700000060125
# HELP pod_swap_usage_bytes [ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems
# TYPE pod_swap_usage_bytes gauge
pod_swap_usage_bytes{namespace="default",pod="web-0"} 4096 1700000060125
# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"#;
        assert_eq!(write(&node), expected);
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        let cases = [
            (0.0, "0"),
            (1e-6, "1e-06"),
            (0.0001, "0.0001"),
            (0.25, "0.25"),
            (123_456.5, "123456.5"),
            (1_000_000.0, "1e+06"),
            (268_435_456.0, "2.68435456e+08"),
        ];
        for (value, expected) in cases {
            assert_eq!(go_float(value), expected);
        }
    }
}
