//! Work queues: deduplication, order, exclusive processing, delays, priorities, retries and shutdown.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::metrics::Families;
use mizzen_sdk::queue::{
    Exponential, FastSlow, Jittered, Limiter, MaxOf, Options, Queue, TokenBucket,
};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Gets and finishes all ready keys.
async fn take_all(queue: &Queue<&'static str>) -> Vec<&'static str> {
    let mut taken = Vec::new();
    while !queue.is_empty() {
        let key = queue.get().await.expect("there is one");
        queue.done(&key);
        taken.push(key);
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn duplicate_keys_are_merged_in_order() {
    let queue = Queue::new("test");
    for key in ["a", "b", "a", "c", "b"] {
        queue.add(key);
    }
    assert_eq!(take_all(&queue).await, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn key_added_during_processing_is_requeued_after_done() {
    let queue = Queue::new("test");
    queue.add("a");
    assert_eq!(queue.get().await, Some("a"));
    queue.add("a");
    queue.add("a");
    assert!(
        timeout(SECOND, queue.get()).await.is_err(),
        "two workers had the same key"
    );
    queue.done(&"a");
    assert_eq!(take_all(&queue).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn done_of_an_idle_key_is_ignored() {
    let queue = Queue::new("test");
    queue.add("a");
    queue.done(&"a");
    queue.done(&"never seen");
    assert_eq!(take_all(&queue).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn earlier_delayed_key_is_ready_on_time() {
    let queue = Queue::new("test");
    queue.add_after("late", 1000 * SECOND);
    let worker = |queue: Queue<&'static str>| async move { queue.get().await };
    let mut workers: tokio::task::JoinSet<_> = (0..3).map(|_| worker(queue.clone())).collect();
    tokio::task::yield_now().await;
    for key in ["first", "second"] {
        queue.add_after(key, SECOND);
        let taken = timeout(2 * SECOND, workers.join_next()).await;
        assert_eq!(
            taken
                .expect("it is due")
                .expect("a worker is left")
                .unwrap(),
            Some(key)
        );
    }
    let start = Instant::now();
    assert_eq!(
        workers
            .join_next()
            .await
            .expect("a worker is left")
            .unwrap(),
        Some("late")
    );
    assert_eq!(start.elapsed().as_secs(), 998);
}

#[tokio::test(start_paused = true)]
async fn delayed_key_is_ready_when_due() {
    let queue = Queue::new("test");
    let start = Instant::now();
    queue.add_after("late", 5 * SECOND);
    queue.add_after("soon", SECOND);
    assert!(queue.is_empty());
    assert_eq!(queue.get().await, Some("soon"));
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!(queue.get().await, Some("late"));
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn due_keys_count_in_len_and_depth() {
    let queue = Queue::new("test");
    queue.add_after("a", SECOND);
    queue.add_after("b", 2 * SECOND);
    queue.add_after("later", 100 * SECOND);
    assert_eq!(
        (queue.len(), queue.metrics().depth, queue.metrics().adds),
        (0, 0, 0)
    );
    tokio::time::advance(5 * SECOND).await;
    assert_eq!(queue.len(), 2);
    assert_eq!(
        (
            queue.metrics().depth,
            queue.metrics().adds,
            queue.metrics().retries
        ),
        (2, 2, 3)
    );
    assert_eq!(take_all(&queue).await, ["a", "b"]);
    // The queue time counts from when they were due: four seconds and three.
    let text = Families::of(&[&queue]).to_string();
    assert!(
        text.contains("workqueue_queue_duration_seconds_sum{name=\"test\"} 7\n"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn due_keys_precede_later_additions() {
    let queue = Queue::new("test");
    queue.add_after("due", SECOND);
    tokio::time::advance(2 * SECOND).await;
    queue.add("added");
    assert_eq!(take_all(&queue).await, ["due", "added"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_workers_get_all_due_keys() {
    let queue = Queue::new("test");
    let mut workers: tokio::task::JoinSet<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            async move { queue.get().await }
        })
        .collect();
    tokio::task::yield_now().await;
    for key in ["a", "b", "c"] {
        queue.add_after(key, SECOND);
    }
    tokio::time::advance(SECOND).await;
    let mut taken = Vec::new();
    while let Some(key) = timeout(SECOND, workers.join_next())
        .await
        .expect("a worker sleeps on")
    {
        taken.push(key.unwrap().unwrap());
    }
    taken.sort();
    assert_eq!(taken, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn shorter_of_two_delays_wins() {
    let queue = Queue::new("test");
    let start = Instant::now();
    queue.add_after("a", 5 * SECOND);
    queue.add_after("a", 2 * SECOND);
    queue.add_after("a", 9 * SECOND);
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(start.elapsed().as_secs(), 2);
    queue.done(&"a");
    assert!(
        timeout(20 * SECOND, queue.get()).await.is_err(),
        "the other delays count too"
    );
}

#[tokio::test(start_paused = true)]
async fn shorter_delay_wakes_waiting_workers() {
    let queue = Queue::new("test");
    queue.add_after("late", 100 * SECOND);
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    let start = Instant::now();
    queue.add_after("soon", SECOND);
    assert_eq!(waiter.await.unwrap(), Some("soon"));
    assert_eq!(start.elapsed().as_secs(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_worker_takes_over_the_timer() {
    let queue = Queue::new("test");
    queue.add_after("a", 10 * SECOND);
    let first = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(
        timeout(11 * SECOND, second)
            .await
            .expect("nobody watches the clock")
            .unwrap(),
        Some("a")
    );
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_come_first_until_lower_ones_age() {
    let queue = Queue::with(Options {
        aging: 10 * SECOND,
        ..Options::new("test")
    });
    queue.add("old");
    tokio::time::advance(15 * SECOND).await;
    queue.add("plain");
    queue.add_with_priority("urgent", 1);
    queue.add_with_priority("lazy", -5);
    queue.add_with_priority("vital", 7);
    // "old" has aged by more than one priority, so that "urgent" no longer passes it.
    assert_eq!(
        take_all(&queue).await,
        ["vital", "old", "urgent", "plain", "lazy"]
    );
}

#[tokio::test(start_paused = true)]
async fn merged_key_keeps_the_higher_priority() {
    let queue = Queue::new("test");
    queue.add("a");
    queue.add("b");
    queue.add_with_priority("b", 3);
    queue.add_with_priority("b", 1);
    assert_eq!(queue.len(), 2);
    assert_eq!(take_all(&queue).await, ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn urgent_keys_do_not_starve_lower_priorities() {
    let queue = Queue::new("test");
    queue.add(0);
    for key in 1..100 {
        queue.add_with_priority(key, 10);
        let taken = queue.get().await.unwrap();
        queue.done(&taken);
        if taken == 0 {
            assert!(key >= 10, "it aged too fast");
            return;
        }
        tokio::time::advance(SECOND).await;
        queue.add_with_priority(-key, 10);
    }
    panic!("it starved");
}

#[tokio::test(start_paused = true)]
async fn retry_delay_grows_until_forget() {
    let limiter = Exponential::new(Duration::from_millis(1), SECOND);
    let queue = Queue::with(Options {
        limiter: Box::new(limiter),
        ..Options::new("test")
    });
    let mut waits = Vec::new();
    for _ in 0..12 {
        let start = Instant::now();
        queue.add_rate_limited("a");
        queue.get().await;
        queue.done(&"a");
        waits.push(start.elapsed().as_millis());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
    assert_eq!(queue.num_requeues(&"a"), 12);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(queue.metrics().retries, 12);
}

#[tokio::test(start_paused = true)]
async fn rate_limiters_return_delays() {
    let milliseconds = |limiter: &dyn Limiter<&str>, times: usize| -> Vec<u128> {
        (0..times).map(|_| limiter.when(&"a").as_millis()).collect()
    };
    let fast_slow = FastSlow::new(Duration::from_millis(5), SECOND, 3);
    assert_eq!(milliseconds(&fast_slow, 5), [5, 5, 5, 1000, 1000]);
    assert_eq!(
        milliseconds(&TokenBucket::new(10.0, 2), 5),
        [0, 0, 100, 200, 300]
    );
    let exponential = Exponential::new(Duration::from_millis(150), SECOND);
    let both = MaxOf(vec![
        Box::new(TokenBucket::new(10.0, 1)),
        Box::new(exponential),
    ]);
    assert_eq!(milliseconds(&both, 4), [150, 300, 600, 1000]);
    let huge = Exponential::new(SECOND, Duration::MAX);
    assert!(milliseconds(&huge, 100).is_sorted(), "it overflowed");
    let jittered = Jittered::new(FastSlow::new(SECOND, SECOND, 1), 0.5, || 0.5);
    assert_eq!(milliseconds(&jittered, 1), [1250]);
}

#[tokio::test(start_paused = true)]
async fn token_bucket_refills_up_to_its_burst() {
    let bucket = TokenBucket::new(1.0, 2);
    let when = || Limiter::<&str>::when(&bucket, &"a").as_secs();
    assert_eq!([when(), when(), when()], [0, 0, 1]);
    tokio::time::advance(100 * SECOND).await;
    assert_eq!([when(), when(), when()], [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn shut_down_drains_and_rejects_new_keys() {
    let queue = Queue::new("test");
    queue.add("a");
    queue.add_after("never", SECOND);
    queue.shut_down();
    queue.add("b");
    queue.add_after("c", SECOND);
    assert_eq!(queue.get().await, Some("a"));
    assert_eq!(queue.get().await, None);
    assert!(queue.is_shut_down());
}

#[tokio::test(start_paused = true)]
async fn shut_down_drops_keys_that_are_not_due() {
    let queue = Queue::new("test");
    queue.add_after("due", SECOND);
    queue.add_after("later", 10 * SECOND);
    tokio::time::advance(2 * SECOND).await;
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(
        timeout(SECOND, &mut drain).await.is_err(),
        "it did not wait for the key that is due"
    );
    assert_eq!((queue.len(), queue.get().await), (1, Some("due")));
    queue.done(&"due");
    timeout(SECOND, drain).await.expect("the queue is drained");
    assert_eq!(queue.get().await, None);
}

#[tokio::test(start_paused = true)]
async fn shut_down_wakes_all_workers() {
    let queue: Queue<&str> = Queue::new("test");
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for waiter in waiters {
        assert_eq!(
            timeout(SECOND, waiter)
                .await
                .expect("it sleeps on")
                .unwrap(),
            None
        );
    }
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_processing_and_requeued_keys() {
    let queue = Queue::new("test");
    queue.add("a");
    assert_eq!(queue.get().await, Some("a"));
    queue.add("a");
    let idle = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::task::yield_now().await;
    let mut drain = Box::pin(queue.shut_down_with_drain());
    assert!(
        timeout(SECOND, &mut drain).await.is_err(),
        "it did not wait"
    );
    queue.done(&"a");
    assert_eq!(
        timeout(SECOND, idle).await.expect("it sleeps on").unwrap(),
        Some("a")
    );
    assert!(
        timeout(SECOND, &mut drain).await.is_err(),
        "it did not wait for the second time"
    );
    queue.done(&"a");
    timeout(SECOND, drain).await.expect("it waits for nothing");
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_upstream_names() {
    let queue = Queue::new("pods");
    queue.add("a");
    queue.add("b");
    tokio::time::advance(2 * SECOND).await;
    queue.get().await;
    tokio::time::advance(3 * SECOND).await;
    let metrics = queue.metrics();
    assert_eq!(
        (metrics.depth, metrics.adds, metrics.queued.count()),
        (1, 2, 1)
    );
    assert_eq!(
        (metrics.unfinished, metrics.longest_running),
        (3 * SECOND, 3 * SECOND)
    );
    queue.done(&"a");
    let text = Families::of(&[&queue]).to_string();
    for line in [
        "workqueue_depth{name=\"pods\"} 1",
        "workqueue_adds_total{name=\"pods\"} 2",
        "workqueue_retries_total{name=\"pods\"} 0",
        "workqueue_unfinished_work_seconds{name=\"pods\"} 0",
        "workqueue_longest_running_processor_seconds{name=\"pods\"} 0",
        "workqueue_queue_duration_seconds_bucket{name=\"pods\",le=\"1\"} 0",
        "workqueue_queue_duration_seconds_bucket{name=\"pods\",le=\"10\"} 1",
        "workqueue_work_duration_seconds_sum{name=\"pods\"} 3",
        "workqueue_work_duration_seconds_count{name=\"pods\"} 1",
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "no {line} in\n{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_workers_lose_and_share_no_keys() {
    let queue: Queue<u32> = Queue::new("test");
    let working: Arc<Mutex<HashSet<u32>>> = Arc::default();
    let seen: Arc<Mutex<HashMap<u32, usize>>> = Arc::default();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, working, seen) = (queue.clone(), working.clone(), seen.clone());
            tokio::spawn(async move {
                while let Some(key) = queue.get().await {
                    assert!(working.lock().insert(key), "{key} is with two workers");
                    *seen.lock().entry(key).or_default() += 1;
                    tokio::task::yield_now().await;
                    assert!(working.lock().remove(&key));
                    queue.done(&key);
                }
            })
        })
        .collect();
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for number in 0..2_000 {
                    queue.add_with_priority((producer * 7 + number) % 500, (number % 3) as i32);
                    if number % 64 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    queue.shut_down_with_drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(seen.lock().len(), 500);
}
