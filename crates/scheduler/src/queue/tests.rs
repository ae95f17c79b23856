//! The queue under paused time.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::Entry;
use tokio::time::advance;

use super::*;

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"{name}"}},"spec":{{"priority":{priority}}}}}"#
    );
    Arc::new(PodInfo::from_entry(&Entry::new(text.into_bytes()).unwrap()).unwrap())
}

fn rejected() -> PluginNames {
    [Name::NodeResourcesFit].into_iter().collect()
}

fn pop(queue: &mut SchedulingQueue) -> Option<String> {
    queue.flush(|_| None);
    queue
        .pop()
        .map(|queued_pod| queued_pod.pod.name.to_string())
}

#[tokio::test(start_paused = true)]
async fn pods_are_tried_by_priority_then_by_time() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    for (name, priority) in [("a", 0), ("b", 10), ("c", 0), ("d", 10)] {
        queue.add(pod(name, priority), None);
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_waits_for_a_hint_that_queues_it() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), None);
    let queued_pod = queue.pop().unwrap();
    queue.add_unschedulable(queued_pod, rejected());
    assert_eq!(pop(&mut queue), None);
    queue.move_all_to_active_or_backoff("NodeAdd", PluginNames::all(), |_, _| false, |_| None);
    assert_eq!(pop(&mut queue), None);
    queue.move_all_to_active_or_backoff(
        "NodeAdd",
        PluginNames::all(),
        |_, unschedulable_plugins| unschedulable_plugins == rejected(),
        |_| None,
    );
    // activeQ is empty, so the pod is popped before its back-off ends.
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_back_off_comes_after_active_pods() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 100), None);
    let queued_pod = queue.pop().unwrap();
    queue.add_unschedulable(queued_pod, rejected());
    queue.move_all_to_active_or_backoff("NodeAdd", PluginNames::all(), |_, _| true, |_| None);
    queue.add(pod("b", 0), None);
    assert_eq!(pop(&mut queue).as_deref(), Some("b"));
    queue.add(pod("c", 0), None);
    advance(Duration::from_secs(2)).await;
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_with_exponential_back_off() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), None);
    for seconds in [1, 2, 4, 8, 10, 10] {
        let queued_pod = queue.pop().expect("the pod is active");
        queue.add_unschedulable(queued_pod, PluginNames::default());
        advance(Duration::from_secs(seconds)).await;
        assert_eq!(
            queue.next_deadline() - Instant::now(),
            Duration::from_secs(1),
            "after {seconds} s"
        );
        assert_eq!(pop(&mut queue), None);
        advance(Duration::from_secs(1)).await;
        queue.flush(|_| None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_retried_after_five_minutes() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), None);
    let queued_pod = queue.pop().unwrap();
    queue.add_unschedulable(queued_pod, rejected());
    advance(Duration::from_secs(299)).await;
    assert_eq!(pop(&mut queue), None);
    advance(Duration::from_secs(31)).await;
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_scheduling_gate_keeps_a_pod_out_of_the_active_queue() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), Some(Name::SchedulingGates));
    assert_eq!((pop(&mut queue), queue.depths().gated), (None, 1));
    queue.move_all_to_active_or_backoff(
        "NodeAdd",
        PluginNames::all(),
        |_, _| true,
        |_| Some(Name::SchedulingGates),
    );
    assert_eq!(pop(&mut queue), None);
    queue.move_all_to_active_or_backoff(
        "NodeAdd",
        PluginNames::all(),
        |_, unschedulable_plugins| unschedulable_plugins.has(Name::SchedulingGates),
        |_| None,
    );
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_preemptor_is_retried_when_its_victims_are_deleted() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), None);
    let queued_pod = queue.pop().unwrap();
    queue.add_unschedulable(queued_pod, rejected());
    queue.hold("a");
    queue.move_all_to_active_or_backoff("NodeAdd", PluginNames::all(), |_, _| true, |_| None);
    assert_eq!(pop(&mut queue), None);
    queue.release("a", true);
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_preemptor_is_retried_at_once_if_preemption_fails() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    queue.add(pod("a", 0), None);
    let queued_pod = queue.pop().unwrap();
    queue.add_unschedulable(queued_pod, rejected());
    queue.hold("a");
    queue.release("a", false);
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn nominations_survive_updates_that_do_not_have_them() {
    let mut queue = SchedulingQueue::new(BackoffDurations::default());
    let a = pod("a", 0);
    queue.add(a.clone(), None);
    queue.nominated.add(&a, Some(&"n1".into()));
    queue.update(&pod("a", 0));
    assert_eq!(queue.nominated.pods_for_node("n1").len(), 1);
    queue.nominated.add(&a, Some(&"".into()));
    assert!(queue.nominated.is_empty());
}
