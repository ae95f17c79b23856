//! Node health: node status and lease renewals are heartbeats.
//!
//! Probe times are taken on our monotonic clock when a heartbeat is seen: the clocks of nodes may
//! be wrong, and ours may step.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mizzen_value::{Value, time, value};
use mizzen_workloads::common::pod::condition;

/// The options of node monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeMonitor {
    /// How often nodes are checked.
    pub period: Duration,
    /// How long a node may be without a heartbeat before its Ready becomes Unknown.
    pub grace_period: Duration,
    /// How long a new node may take for its first heartbeat.
    pub startup_grace_period: Duration,
}

impl Default for NodeMonitor {
    fn default() -> NodeMonitor {
        NodeMonitor {
            period: Duration::from_secs(5),
            grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
        }
    }
}

/// The conditions that the kubelet reports. NetworkUnavailable is reported by the network plug-in.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What is kept of a node between two checks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeHealth {
    /// When the last heartbeat was seen, on the monotonic clock.
    pub seen: Timestamp,
    /// lastHeartbeatTime of Ready; none if there was no such condition.
    heartbeat: Option<Value>,
    /// The lease's renewTime.
    renewed: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeHealthCheck {
    pub health: NodeHealth,
    /// The status of Ready after the check; none if it was never reported.
    pub ready: Option<String>,
    /// Whether the check changed Ready from True because heartbeats stopped.
    pub lost: bool,
    /// The conditions to write, if they changed.
    pub conditions: Option<Vec<Value>>,
}

/// The time of a check: on the monotonic and on the wall clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckTime {
    pub monotonic: Timestamp,
    pub wall: Timestamp,
}

/// Checks a node. `renewed` is the renewTime of its lease (`""` if it has none).
pub(super) fn check_health(
    known: Option<&NodeHealth>,
    node: &Value,
    renewed: &str,
    now: CheckTime,
    monitor: NodeMonitor,
) -> NodeHealthCheck {
    let health = NodeHealth::update(known, node, renewed, now);
    let before = condition(node, "Ready");
    let grace = if before.is_some() {
        monitor.grace_period
    } else {
        monitor.startup_grace_period
    };
    let is_silent = now.monotonic > health.seen + grace;
    let conditions = is_silent.then(|| unknown_conditions(node, &now_text(now.wall)));
    let after = match &conditions {
        Some(conditions) => conditions
            .iter()
            .find(|condition| condition["type"].str() == "Ready"),
        None => before,
    };
    let ready = after.map(|condition| condition["status"].str().to_string());
    let was_ready = before.is_some_and(|condition| condition["status"].str() == "True");
    let lost = was_ready && ready.as_deref() != Some("True");
    // Kubernetes: other missing conditions are written only together with a change of Ready
    // (node_lifecycle_controller.go).
    let conditions = if after == before { None } else { conditions };
    NodeHealthCheck {
        health,
        ready,
        lost,
        conditions,
    }
}

/// The time as RFC 3339.
pub(super) fn now_text(now: Timestamp) -> String {
    time::from_unix(now.as_second())
}

impl NodeHealth {
    /// The health after a check of the heartbeats.
    fn update(
        known: Option<&NodeHealth>,
        node: &Value,
        renewed: &str,
        now: CheckTime,
    ) -> NodeHealth {
        let heartbeat =
            condition(node, "Ready").map(|condition| condition["lastHeartbeatTime"].clone());
        // Kubernetes: only a later renewTime counts (node_lifecycle_controller.go). Then a node whose
        // clock is set back by an hour is not ready for an hour although it renews its lease; here any
        // new renewTime is a heartbeat.
        let is_renewed = |known: &NodeHealth| !renewed.is_empty() && known.renewed != renewed;
        let seen = match known {
            Some(known) if known.heartbeat == heartbeat && !is_renewed(known) => known.seen,
            None if heartbeat.is_none() && renewed.is_empty() => {
                now.creation_of(node).unwrap_or(now.monotonic)
            }
            _ => now.monotonic,
        };
        NodeHealth {
            seen,
            heartbeat,
            renewed: renewed.to_string(),
        }
    }
}

impl CheckTime {
    /// When a node was created, on the monotonic clock; not in the future.
    fn creation_of(self, node: &Value) -> Option<Timestamp> {
        let seconds = time::to_unix(node["metadata"]["creationTimestamp"].str())?;
        let age = self
            .wall
            .duration_since(Timestamp::from_second(seconds).ok()?);
        self.monotonic
            .checked_sub(age.max(SignedDuration::ZERO))
            .ok()
    }
}

/// The conditions of a node without heartbeats.
fn unknown_conditions(node: &Value, now: &str) -> Vec<Value> {
    let mut conditions = node["status"]["conditions"].list().to_vec();
    for kind in REPORTED {
        match conditions
            .iter_mut()
            .find(|condition| condition["type"].str() == kind)
        {
            Some(condition) if condition["status"].str() == "Unknown" => (),
            Some(condition) => {
                condition.set("status", "Unknown");
                condition.set("reason", "NodeStatusUnknown");
                condition.set("message", "Kubelet stopped posting node status.");
                condition.set("lastTransitionTime", now);
            }
            None => conditions.push(value!({
                "type": kind,
                "status": "Unknown",
                "lastHeartbeatTime": (node["metadata"]["creationTimestamp"].clone()),
                "lastTransitionTime": now,
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status.",
            })),
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(
        known: Option<&NodeHealth>,
        node: &Value,
        renewed: &str,
        now: CheckTime,
    ) -> NodeHealthCheck {
        super::check_health(known, node, renewed, now, NodeMonitor::default())
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn now(second: i64) -> CheckTime {
        CheckTime {
            monotonic: at(second),
            wall: at(second),
        }
    }

    fn node(status: &str, heartbeat: &str) -> Value {
        value!({"status": {"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}]}})
    }

    fn young() -> Value {
        value!({"metadata": {"creationTimestamp": "1970-01-01T00:01:40Z"}})
    }

    /// Checks the same node at each second with each renewTime; returns the last check.
    #[track_caller]
    fn check(node: Value, checks: &[(i64, &str)], wanted: Option<&str>) -> NodeHealthCheck {
        let mut last = None::<NodeHealthCheck>;
        for (second, renewed) in checks {
            last = Some(look(
                last.as_ref().map(|look| &look.health),
                &node,
                renewed,
                now(*second),
            ));
        }
        let look = last.unwrap();
        assert_eq!(look.ready.as_deref(), wanted);
        look
    }

    #[test]
    fn a_node_without_heartbeats_is_unknown_after_the_grace_period() {
        assert!(!check(node("True", "t"), &[(100, ""), (150, "")], Some("True")).lost);
        let look = check(node("True", "t"), &[(100, ""), (151, "")], Some("Unknown"));
        assert!(look.lost);
        let reasons: Vec<_> = look
            .conditions
            .iter()
            .flatten()
            .map(|condition| condition["reason"].str())
            .collect();
        let never = "NodeStatusNeverUpdated";
        assert_eq!(reasons, ["NodeStatusUnknown", never, never, never]);
    }

    #[test]
    fn a_renewed_lease_is_a_heartbeat() {
        check(
            node("True", "t"),
            &[(100, "a"), (149, "b"), (199, "b")],
            Some("True"),
        );
        check(
            node("True", "t"),
            &[(100, "a"), (149, "b"), (200, "b")],
            Some("Unknown"),
        );
        check(
            node("True", "t"),
            &[(100, "b"), (149, ""), (151, "")],
            Some("Unknown"),
        );
    }

    #[test]
    fn an_earlier_renew_time_is_a_heartbeat() {
        check(
            node("True", "t"),
            &[(100, "b"), (149, "a"), (199, "a")],
            Some("True"),
        );
        check(
            node("True", "t"),
            &[(100, "b"), (149, "a"), (200, "a")],
            Some("Unknown"),
        );
    }

    #[test]
    fn a_step_of_the_wall_clock_does_not_change_the_grace_period() {
        for step in [-3600, 3600] {
            let now = |second: i64| CheckTime {
                monotonic: at(second),
                wall: at(second + step),
            };
            let first = look(None, &node("True", "t"), "a", super::tests::now(100_000));
            let second = look(Some(&first.health), &node("True", "t"), "a", now(100_050));
            assert_eq!(second.ready.as_deref(), Some("True"), "{step}");
            let third = look(Some(&second.health), &node("True", "t"), "a", now(100_051));
            assert_eq!(third.ready.as_deref(), Some("Unknown"), "{step}");
            let changed = third.conditions.unwrap()[0]["lastTransitionTime"].clone();
            assert_eq!(
                changed.str(),
                now_text(at(100_051 + step)),
                "objects have the time of day"
            );
        }
    }

    #[test]
    fn a_status_is_a_heartbeat_when_its_time_changes() {
        let first = look(None, &node("True", "t"), "", now(100));
        let second = look(Some(&first.health), &node("True", "u"), "", now(149));
        assert_eq!(second.health.seen, at(149));
        let third = look(Some(&second.health), &node("True", "u"), "", now(150));
        assert_eq!(third.health.seen, at(149));
    }

    #[test]
    fn a_new_node_has_longer_to_report_counted_from_its_creation() {
        check(young(), &[(130, ""), (160, "")], None);
        let look = check(young(), &[(130, ""), (161, "")], Some("Unknown"));
        assert!(!look.lost, "it never was ready");
        assert_eq!(
            look.conditions.unwrap()[0]["reason"].str(),
            "NodeStatusNeverUpdated"
        );
    }

    #[test]
    fn an_unknown_node_is_written_once() {
        let look = check(
            node("Unknown", "t"),
            &[(100, ""), (200, "")],
            Some("Unknown"),
        );
        assert_eq!((look.lost, look.conditions), (false, None));
    }

    #[test]
    fn a_node_that_reports_not_ready_is_not_unknown() {
        assert!(!check(node("False", "t"), &[(100, ""), (110, "")], Some("False")).lost);
        assert!(!check(node("False", "t"), &[(100, ""), (151, "")], Some("Unknown")).lost);
    }
}
