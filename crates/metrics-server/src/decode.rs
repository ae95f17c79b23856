//! What does a kubelet report? The text of `/metrics/resource`, as points of its node and of the containers of its pods.
//!
//! Kubernetes: metrics-server's pkg/scraper/client/resource/decode.go.

use std::collections::HashMap;

/// A reading of one node or container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MetricsPoint {
    /// When the container was started, in nanoseconds since 1970; 0 if that is not known.
    pub started: i64,
    /// The time of the measurement, in nanoseconds since 1970.
    pub at: i64,
    /// The CPU time since the start, in nanoseconds of one core.
    pub cpu_nanos: u64,
    /// The working set.
    pub memory_bytes: u64,
}

/// A pod, by its namespace and name.
pub(crate) type PodName = (String, String);

/// The points of containers, by name.
pub(crate) type PodPoints = Vec<(String, MetricsPoint)>;

/// What a kubelet reported at one time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct KubeletReport {
    /// The node; none if the report lacks something.
    pub node: Option<MetricsPoint>,
    /// The pods whose containers are all reported in full.
    pub pods: HashMap<PodName, PodPoints>,
}

/// Reads a report. Samples without a timestamp are of `default_millis` after 1970.
pub(crate) fn decode(text: &str, default_millis: i64) -> Result<KubeletReport, String> {
    let mut node = MetricsPoint::default();
    let mut pods: HashMap<PodName, PodPoints> = HashMap::new();
    for line in text.lines() {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let (subject, metric) = match name {
            "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => {
                name.split_at("node".len())
            }
            "container_cpu_usage_seconds_total"
            | "container_memory_working_set_bytes"
            | "container_start_time_seconds" => name.split_at("container".len()),
            _ => continue,
        };
        let invalid = || format!("failed parsing metrics: {line:?}");
        let rest = &line[name.len()..];
        let (labels, sample) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}').ok_or_else(invalid)?,
            None => ("", rest),
        };
        let mut words = sample.split_whitespace();
        let value: f64 = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(invalid)?;
        let millis = match words.next() {
            Some(word) => word.parse().map_err(|_| invalid())?,
            None => default_millis,
        };
        let point = match subject {
            "node" => &mut node,
            _ => {
                let label = |name: &str| label(labels, name).ok_or_else(invalid);
                let pod = (label("namespace")?.into(), label("pod")?.into());
                container_point(pods.entry(pod).or_default(), label("container")?)
            }
        };
        match metric {
            "_cpu_usage_seconds_total" => {
                // The nearest, for most decimal fractions have no exact form in binary.
                point.cpu_nanos = (value * 1e9).round() as u64;
                point.at = millis * 1_000_000;
            }
            "_memory_working_set_bytes" => {
                point.memory_bytes = value as u64;
                point.at = millis * 1_000_000;
            }
            // Floating point has no more than microseconds of a time of day.
            _ => point.started = (value * 1e6).round() as i64 * 1000,
        }
    }
    let is_whole = |point: &MetricsPoint| point.cpu_nanos != 0 && point.memory_bytes != 0;
    pods.retain(|_, containers| containers.iter().all(|(_, point)| is_whole(point)));
    Ok(KubeletReport {
        node: Some(node).filter(is_whole),
        pods,
    })
}

/// The value of a label. Names of Kubernetes' objects have nothing in them that would be escaped.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(',').find_map(|label| {
        let value = label.trim().strip_prefix(name)?.strip_prefix("=\"")?;
        value.strip_suffix('"')
    })
}

fn container_point<'a>(containers: &'a mut PodPoints, name: &str) -> &'a mut MetricsPoint {
    let known = containers.iter().position(|(known, _)| known == name);
    let idx = known.unwrap_or_else(|| {
        containers.push((name.into(), MetricsPoint::default()));
        containers.len() - 1
    });
    &mut containers[idx].1
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="web",namespace="default",pod="a"} 4.710169 1700000060125
container_cpu_usage_seconds_total{container="side",namespace="default",pod="a"} 1e-06 1700000060125
container_cpu_usage_seconds_total{container="web",namespace="default",pod="idle"} 0 1700000060125
container_memory_working_set_bytes{container="web",namespace="default",pod="a"} 1.9070976e+07 1700000060125
container_memory_working_set_bytes{container="side",namespace="default",pod="a"} 4096 1700000060125
container_memory_working_set_bytes{container="web",namespace="default",pod="idle"} 4096 1700000060125
container_start_time_seconds{container="web",namespace="default",pod="a"} 1.700000000005e+09
container_swap_usage_bytes{container="web",namespace="default",pod="a"} 0 1700000060125
node_cpu_usage_seconds_total 1.234567e+06
node_memory_working_set_bytes 99999
pod_cpu_usage_seconds_total{namespace="default",pod="a"} 4.710169 1700000060125
resource_scrape_error 0
"#;

    #[test]
    fn a_report_has_points_of_the_node_and_of_containers() {
        let batch = decode(REPORT, 1_700_000_061_000).unwrap();
        let node = batch.node.unwrap();
        assert_eq!(
            (node.cpu_nanos, node.memory_bytes, node.at),
            (1_234_567_000_000_000, 99_999, 1_700_000_061_000_000_000)
        );
        let web = MetricsPoint {
            started: 1_700_000_000_005_000_000,
            at: 1_700_000_060_125_000_000,
            cpu_nanos: 4_710_169_000,
            memory_bytes: 19_070_976,
        };
        let side = MetricsPoint {
            started: 0,
            at: web.at,
            cpu_nanos: 1000,
            memory_bytes: 4096,
        };
        let pod = ("default".to_owned(), "a".to_owned());
        let expected = vec![("web".to_owned(), web), ("side".to_owned(), side)];
        assert_eq!(batch.pods, HashMap::from([(pod, expected)]));
    }

    #[test]
    fn what_is_missing_or_zero_is_left_out() {
        let batch = decode("node_cpu_usage_seconds_total 5 1700000060125\n", 0).unwrap();
        assert_eq!(batch, KubeletReport::default());
        assert_eq!(decode("", 0), Ok(KubeletReport::default()));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for line in [
            "node_cpu_usage_seconds_total",
            "node_cpu_usage_seconds_total much",
            "node_cpu_usage_seconds_total 5 later",
            "container_start_time_seconds{container=\"c\" 5",
            "container_start_time_seconds{container=\"c\"} 5",
        ] {
            let expected = format!("failed parsing metrics: {line:?}");
            assert_eq!(decode(line, 0), Err(expected));
        }
    }
}
