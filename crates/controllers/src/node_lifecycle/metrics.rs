//! Metrics of the node lifecycle controller, under upstream's names (pkg/controller/nodelifecycle).

use std::collections::BTreeMap;

use mizzen_sdk::metrics::{Collector, CounterVec, Families, GaugeVec, HistogramVec, exponential};
use tokio::time::Instant;

/// Upper bounds of a check of all nodes, in seconds.
const CHECK_BOUNDS: [f64; 8] = exponential(0.01, 4.0);

#[derive(Debug)]
pub(super) struct NodeCollectorMetrics {
    zone_size: GaugeVec<1>,
    zone_health: GaugeVec<1>,
    unhealthy_nodes: GaugeVec<1>,
    evictions: CounterVec<1>,
    checks: HistogramVec<0>,
}

impl Default for NodeCollectorMetrics {
    fn default() -> NodeCollectorMetrics {
        NodeCollectorMetrics {
            zone_size: GaugeVec::new("node_collector_zone_size", "Nodes of a zone.", ["zone"]),
            zone_health: GaugeVec::new(
                "node_collector_zone_health",
                "The percentage of nodes of a zone that are ready.",
                ["zone"],
            ),
            unhealthy_nodes: GaugeVec::new(
                "node_collector_unhealthy_nodes_in_zone",
                "Nodes of a zone that are not ready.",
                ["zone"],
            ),
            evictions: CounterVec::new(
                "node_collector_evictions_total",
                "Nodes that got a NoExecute taint because they were not ready.",
                ["zone"],
            ),
            checks: HistogramVec::new(
                "node_collector_update_all_nodes_health_duration_seconds",
                "How long a check of all nodes took.",
                [],
                &CHECK_BOUNDS,
            ),
        }
    }
}

impl NodeCollectorMetrics {
    /// Sets the gauges of all zones from the readiness of their nodes. A zone without nodes stays.
    pub(super) fn set_zones(&self, ready: &BTreeMap<String, Vec<bool>>, began: Instant) {
        for zone in self.zone_size.values() {
            if !ready.contains_key(&*zone[0]) {
                self.zone_size.set(zone.clone(), 0.0);
                self.zone_health.set(zone.clone(), 100.0);
                self.unhealthy_nodes.set(zone, 0.0);
            }
        }
        for (zone, ready) in ready {
            let (n_nodes, zone) = (ready.len() as f64, [zone.clone().into()]);
            let n_unhealthy = ready.iter().filter(|ready| !**ready).count() as f64;
            self.evictions.add(zone.clone(), 0);
            self.zone_size.set(zone.clone(), n_nodes);
            let percentage = 100.0 * (n_nodes - n_unhealthy) / n_nodes;
            self.zone_health.set(zone.clone(), percentage);
            self.unhealthy_nodes.set(zone, n_unhealthy);
        }
        self.checks.observe([], began.elapsed().as_secs_f64());
    }

    pub(super) fn count_eviction(&self, zone: String) {
        self.evictions.add([zone.into()], 1);
    }
}

impl Collector for NodeCollectorMetrics {
    fn collect(&self, families: &mut Families) {
        self.zone_size.collect(families);
        self.zone_health.collect(families);
        self.unhealthy_nodes.collect(families);
        self.evictions.collect(families);
        self.checks.collect(families);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_zone_without_nodes_stays_with_a_size_of_zero() {
        let metrics = NodeCollectorMetrics::default();
        let zones = BTreeMap::from([("a".into(), vec![true, false]), ("b".into(), vec![true])]);
        metrics.set_zones(&zones, Instant::now());
        metrics.count_eviction("a".into());
        metrics.set_zones(&BTreeMap::from([("a".into(), vec![true])]), Instant::now());
        let text = Families::of(&[&metrics]).to_string();
        for line in [
            r#"node_collector_zone_size{zone="a"} 1"#,
            r#"node_collector_zone_size{zone="b"} 0"#,
            r#"node_collector_zone_health{zone="b"} 100"#,
            r#"node_collector_evictions_total{zone="a"} 1"#,
            r#"node_collector_evictions_total{zone="b"} 0"#,
            "node_collector_update_all_nodes_health_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }
}
