//! The metrics of the scheduling framework and of the queue.

use std::time::Duration;

use tokio::time::sleep;

use crate::fixtures::{create_node, place, pod_of, settle, start};

/// How long gauges and counters of the queue may be stale.
const STALE: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn plugins_extension_points_and_queues_are_measured() {
    let cluster = start().await;
    pod_of(&cluster, "first", "2", 1).await;
    settle(&cluster).await;
    for node in ["n1", "n2"] {
        create_node(&cluster, node, "{}").await;
    }
    // Its back-off ends.
    sleep(STALE).await;
    assert_ne!(place(&cluster, "first").await, "");
    for (name, cpu) in [("second", "4"), ("third", "2")] {
        pod_of(&cluster, name, cpu, 1).await;
        place(&cluster, name).await;
    }
    pod_of(&cluster, "vip", "3", 1000).await;
    settle(&cluster).await;
    sleep(STALE).await;
    let text = cluster.metrics();
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        let line = line.unwrap_or_else(|| panic!("{series} is not in\n{text}"));
        line.trim().parse::<f64>().unwrap()
    };
    let profile = "profile=\"default-scheduler\"";
    for (point, status, least) in [
        ("PreFilter", "Success", 4.0),
        ("Filter", "Success", 4.0),
        ("PreScore", "Success", 1.0),
        ("Score", "Success", 1.0),
        ("Reserve", "Success", 3.0),
        ("Bind", "Success", 3.0),
        ("PostFilter", "Success", 1.0),
    ] {
        let name = "scheduler_framework_extension_point_duration_seconds_count";
        let labels = format!("{{extension_point=\"{point}\",{profile},status=\"{status}\"}}");
        let n = value(&format!("{name}{labels}"));
        assert!(n >= least, "{point}: {n}\n{text}");
    }
    for (plugin, point, least) in [
        ("NodeResourcesFit", "PreFilter", 4.0),
        ("NodeResourcesFit", "Filter", 6.0),
        ("NodeResourcesFit", "Score", 2.0),
    ] {
        let name = "scheduler_plugin_evaluation_total";
        let labels = format!("{{extension_point=\"{point}\",plugin=\"{plugin}\",{profile}}}");
        let n = value(&format!("{name}{labels}"));
        assert!(n >= least, "{plugin} at {point}: {n}\n{text}");
    }
    for (queue, event, least) in [
        ("active", "UnschedulablePodAdd", 4.0),
        ("backoff", "ScheduleAttemptFailure", 1.0),
        ("unschedulable", "ScheduleAttemptFailure", 1.0),
    ] {
        let labels = format!("{{event=\"{event}\",queue=\"{queue}\"}}");
        let n = value(&format!("scheduler_queue_incoming_pods_total{labels}"));
        assert!(n >= least, "{queue} by {event}: {n}\n{text}");
    }
    assert_eq!(
        value("scheduler_preemption_goroutines_execution_total{result=\"success\"}"),
        1.0
    );
    assert_eq!(value("scheduler_preemption_victims_count"), 1.0);
    assert_eq!(value("scheduler_pod_scheduled_after_flush_total"), 0.0);
    assert_eq!(value("scheduler_goroutines{operation=\"binding\"}"), 0.0);
    let pending = value("scheduler_pending_pods{queue=\"unschedulable\"}");
    assert_eq!(pending, 1.0, "the preemptor waits\n{text}");
    value("scheduler_event_handling_duration_seconds_count{event=\"NodeAdd\"}");
}

#[tokio::test(start_paused = true)]
async fn plugins_are_timed_in_one_of_ten_cycles() {
    let cluster = start().await;
    create_node(&cluster, "n1", "{}").await;
    for n in 0..11 {
        let name = format!("p{n}");
        pod_of(&cluster, &name, "100m", 1).await;
        place(&cluster, &name).await;
    }
    let text = cluster.metrics();
    let timed = "scheduler_plugin_execution_duration_seconds_count{extension_point=\"Filter\",\
                 plugin=\"NodeResourcesFit\",status=\"Success\"} 2";
    assert!(text.lines().any(|line| line == timed), "{text}");
    let name = "scheduler_plugin_evaluation_total{extension_point=\"Filter\",\
                plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"} 11";
    assert!(text.lines().any(|line| line == name), "{text}");
}
