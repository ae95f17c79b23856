//! The queue on time that only passes when everybody waits.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::Entry;
use tokio::time::advance;

use super::*;

fn pod(name: &str, priority: i32) -> Arc<Pod> {
    let text = format!(
        r#"{{"metadata":{{"namespace":"default","name":"{name}","uid":"{name}"}},"spec":{{"priority":{priority}}}}}"#
    );
    Arc::new(Pod::of(&Entry::new(text.into_bytes()).unwrap()).unwrap())
}

fn rejected() -> Names {
    [Name::NodeResourcesFit].into_iter().collect()
}

fn pop(queue: &mut Queue) -> Option<String> {
    queue.flush(|_| None);
    queue.pop().map(|waiting| waiting.pod.name.to_string())
}

#[tokio::test(start_paused = true)]
async fn pods_are_tried_by_priority_then_by_time() {
    let mut queue = Queue::new(Delays::default());
    for (name, priority) in [("a", 0), ("b", 10), ("c", 0), ("d", 10)] {
        queue.add(pod(name, priority), None);
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).collect();
    assert_eq!(order, ["b", "d", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_failed_waits_for_something_that_helps() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), None);
    let waiting = queue.pop().unwrap();
    queue.fail(waiting, rejected());
    assert_eq!(pop(&mut queue), None);
    queue.wake(Names::all(), |_, _| false, |_| None);
    assert_eq!(pop(&mut queue), None);
    queue.wake(
        Names::all(),
        |_, rejectors| rejectors == rejected(),
        |_| None,
    );
    // Nobody else wants to be tried, so that it need not back off.
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn whoever_failed_lately_comes_after_those_that_did_not() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 100), None);
    let waiting = queue.pop().unwrap();
    queue.fail(waiting, rejected());
    queue.wake(Names::all(), |_, _| true, |_| None);
    queue.add(pod("b", 0), None);
    assert_eq!(pop(&mut queue).as_deref(), Some("b"));
    queue.add(pod("c", 0), None);
    advance(Duration::from_secs(2)).await;
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn errors_are_tried_again_ever_later() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), None);
    for seconds in [1, 2, 4, 8, 10, 10] {
        let waiting = queue.pop().expect("it is its turn");
        queue.fail(waiting, Names::default());
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
async fn a_pod_that_nothing_helped_is_tried_after_five_minutes() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), None);
    let waiting = queue.pop().unwrap();
    queue.fail(waiting, rejected());
    advance(Duration::from_secs(299)).await;
    assert_eq!(pop(&mut queue), None);
    advance(Duration::from_secs(31)).await;
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_gate_keeps_a_pod_out_until_it_opens() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), Some(Name::SchedulingGates));
    assert_eq!((pop(&mut queue), queue.depths().gated), (None, 1));
    queue.wake(Names::all(), |_, _| true, |_| Some(Name::SchedulingGates));
    assert_eq!(pop(&mut queue), None);
    queue.wake(
        Names::all(),
        |_, rejectors| rejectors.has(Name::SchedulingGates),
        |_| None,
    );
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_for_which_others_go_is_tried_when_they_are_on_their_way() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), None);
    let waiting = queue.pop().unwrap();
    queue.fail(waiting, rejected());
    queue.hold("a");
    queue.wake(Names::all(), |_, _| true, |_| None);
    assert_eq!(pop(&mut queue), None);
    queue.release("a", true);
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_for_which_others_could_not_go_is_tried_at_once() {
    let mut queue = Queue::new(Delays::default());
    queue.add(pod("a", 0), None);
    let waiting = queue.pop().unwrap();
    queue.fail(waiting, rejected());
    queue.hold("a");
    queue.release("a", false);
    assert_eq!(pop(&mut queue).as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn nominations_follow_the_pod_and_outlive_what_the_api_knows() {
    let mut queue = Queue::new(Delays::default());
    let a = pod("a", 0);
    queue.add(a.clone(), None);
    queue.nominated.add(&a, Some(&"n1".into()));
    queue.replace(&pod("a", 0));
    assert_eq!(queue.nominated.on("n1").len(), 1);
    queue.nominated.add(&a, Some(&"".into()));
    assert!(queue.nominated.is_empty());
}
