//! Look-ups by index during continuous writes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use mizzen_sdk::cache::by_owner;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::watch::ListWatch;

use crate::Figures;
use crate::feed::{Feed, N_PODS, update};
use crate::sides::runtime;

/// The duration of the measurement.
const TIME: Duration = Duration::from_secs(3);

pub(crate) fn measure() -> Figures {
    let runtime = runtime();
    let informer: Informer<Pod> = runtime.block_on(async {
        let (client, sender) = Feed::open(N_PODS);
        let informer = Informer::new(ListWatch::all(client));
        informer.add_index("owner", by_owner());
        informer.start();
        informer.wait_for_sync().await;
        tokio::spawn(update(sender, usize::MAX / 2));
        informer
    });
    let before = informer.store().version();
    let times = look_up(&informer);
    let writes = (informer.store().version().0 - before.0) as f64 / TIME.as_secs_f64();
    vec![
        (
            "look-up of 3 pods by owner, median ns".into(),
            times[times.len() / 2],
        ),
        (
            "look-up of 3 pods by owner, mean ns".into(),
            times.iter().sum::<f64>() / times.len() as f64,
        ),
        ("updates a second meanwhile".into(), writes),
    ]
}

/// The durations of look-ups in nanoseconds, sorted; each is the mean of a hundred.
fn look_up(informer: &Informer<Pod>) -> Vec<f64> {
    let owners: Vec<String> = (0..100)
        .map(|at| format!("owner-{}", at * 331 % (N_PODS / 3)))
        .collect();
    let (started, mut times) = (Instant::now(), Vec::new());
    while started.elapsed() < TIME {
        let began = Instant::now();
        for owner in &owners {
            let found = informer
                .store()
                .by_index("owner", owner)
                .map(|found| found.len());
            assert_eq!(black_box(found), Some(3));
        }
        times.push(began.elapsed().as_nanos() as f64 / owners.len() as f64);
    }
    times.sort_by(f64::total_cmp);
    times
}
