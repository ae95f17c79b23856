//! Caching 100,000 pods: with an informer, and with `kube-runtime`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::watch::ListWatch;
use tokio::sync::mpsc::Sender;

use crate::Figures;
use crate::feed::{Feed, LISTED, N_PODS, update};

/// The number of updates.
const N_UPDATES: usize = 160_000;

/// A runtime with the same number of threads for both sides.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// The resident memory of this process in MB.
pub(crate) fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|text| text.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1024.0
}

/// The CPU time of this process in ms, which repeats on a shared machine.
fn computed() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |at: usize| {
        fields
            .split(' ')
            .nth(at)
            .and_then(|text| text.parse::<f64>().ok())
    };
    (ticks(11).unwrap_or(f64::NAN) + ticks(12).unwrap_or(f64::NAN)) * 10.0
}

/// The progress of a side: synced, and the version of the last update.
#[derive(Clone, Default)]
struct Heard {
    events: Arc<AtomicUsize>,
    version: Arc<AtomicUsize>,
}

impl Heard {
    fn hear(&self, version: usize) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.version.store(version, Ordering::Release);
    }
}

/// Measures one side. `follow` returns when the cache has synced.
async fn measure<F: Future<Output = ()>>(begin: impl FnOnce(kube::Client, Heard) -> F) -> Figures {
    let (client, sender) = Feed::open(N_PODS);
    let heard = Heard::default();
    let (before, computed_before, started) = (resident(), computed(), Instant::now());
    begin(client, heard.clone()).await;
    let synced = (started.elapsed(), computed() - computed_before);
    let kept = resident() - before;
    let computed_before = computed();
    let rate = stream(sender, &heard).await;
    vec![
        ("synced after, ms".into(), synced.0.as_secs_f64() * 1000.0),
        ("CPU for that, ms".into(), synced.1),
        ("resident after that, MB".into(), kept),
        ("updates heard a second".into(), rate),
        (
            "CPU of an update, µs".into(),
            (computed() - computed_before) * 1000.0 / N_UPDATES as f64,
        ),
        ("resident after updates, MB".into(), resident() - before),
    ]
}

/// Sends updates until the handler has the last one. Returns the updates per second.
async fn stream(sender: Sender<Bytes>, heard: &Heard) -> f64 {
    while heard.events.load(Ordering::Relaxed) < N_PODS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (before, started) = (heard.events.load(Ordering::Relaxed), Instant::now());
    let _open = update(sender, N_UPDATES).await;
    while heard.version.load(Ordering::Acquire) < LISTED + N_UPDATES {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (heard.events.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64()
}

pub(crate) fn measure_sdk() -> Figures {
    runtime().block_on(measure(|client, heard| async move {
        let informer: Informer<Pod> = Informer::new(ListWatch::all(client));
        let registration = informer
            .add_handler(move |event: Event<Pod>| heard.hear(event.object().version().0 as usize));
        informer.start();
        registration.wait_for_sync().await;
    }))
}

pub(crate) fn measure_kube() -> Figures {
    runtime().block_on(measure(|client, heard| async move {
        let (reader, writer) = reflector::store::<Pod>();
        let watcher = watcher(Api::<Pod>::all(client), watcher::Config::default());
        let events = reflector(writer, watcher).applied_objects();
        let kept = reader.clone();
        tokio::spawn(async move {
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                let version = event.ok().and_then(|pod| pod.metadata.resource_version);
                heard.hear(
                    version
                        .and_then(|text| text.parse().ok())
                        .unwrap_or_default(),
                );
            }
            drop(kept);
        });
        reader.wait_until_ready().await.expect("the reflector runs");
    }))
}
