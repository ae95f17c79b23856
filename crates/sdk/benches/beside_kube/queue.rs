//! Queue throughput of four tasks, each of which adds, gets and finishes keys.

use std::time::Instant;

use mizzen_sdk::Key;
use mizzen_sdk::queue::Queue;

use crate::Figures;
use crate::sides::runtime;

const N_TASKS: usize = 4;
const N_KEYS: usize = 500_000;

pub(crate) fn measure() -> Figures {
    vec![
        (
            "keys a second through a queue, 4 tasks".into(),
            rate(|key| key),
        ),
        (
            "the same, keys of namespace and name".into(),
            rate(|key| Key::new("default", format!("web-{key}"))),
        ),
    ]
}

fn rate<T: std::hash::Hash + Eq + Clone + Send + Sync + 'static>(name: impl Fn(usize) -> T) -> f64 {
    let queue: Queue<T> = Queue::new("bench");
    let keys: Vec<Vec<T>> = (0..N_TASKS)
        .map(|task| {
            (0..N_KEYS)
                .map(|at| name(at % 1000 * N_TASKS + task))
                .collect()
        })
        .collect();
    let started = Instant::now();
    runtime().block_on(async {
        let tasks: Vec<_> = keys
            .into_iter()
            .map(|keys| tokio::spawn(work(queue.clone(), keys)))
            .collect();
        for task in tasks {
            task.await.expect("it works");
        }
    });
    (N_TASKS * N_KEYS) as f64 / started.elapsed().as_secs_f64()
}

/// Adds each key and finishes the next ready one.
async fn work<T: std::hash::Hash + Eq + Clone + Send + Sync + 'static>(
    queue: Queue<T>,
    keys: Vec<T>,
) {
    for key in keys {
        queue.add(key);
        if let Some(key) = queue.get().await {
            queue.done(&key);
        }
    }
}
