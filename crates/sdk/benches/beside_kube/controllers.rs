//! A controller of 10,000 pods: with `Controller` of this crate, and with that of `kube-runtime`. Start-up, updates at
//! two rates, and a burst.
//!
//! Each update has a version of its own. A reconcile sees the version of its object, and so the time since that was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::controller;
use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;

use crate::Figures;
use crate::feed::{Feed, LISTED, write_update};
use crate::sides::{resident, runtime};

const N_PODS: usize = 10_000;
/// How many reconciles run at a time, on both sides.
const N_WORKERS: u16 = 4;
/// Updates a second and their number; the last phase has no pauses.
const PHASES: [(&str, Option<u32>, usize); 3] = [
    ("100 updates/s", Some(100), 500),
    ("1,000 updates/s", Some(1_000), 5_000),
    ("a burst", None, 20_000),
];

/// The CPU time of all threads in µs.
fn cpu_time() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let nanos = threads.flatten().filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1000.0
}

/// What the reconciler has seen.
struct Seen {
    started: Instant,
    /// When each update was sent, by its number, in ns since the start.
    sent: Vec<AtomicU64>,
    n_reconciles: AtomicUsize,
    /// The latest version of all.
    version: AtomicUsize,
    /// The times from an update to its reconcile in µs.
    delays: Mutex<Vec<f64>>,
}

impl Seen {
    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// The reconciler of both sides.
    fn reconcile(&self, pod: &Pod) {
        let version = pod.metadata.resource_version.as_deref();
        let version: usize = version
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        if let Some(number) = version.checked_sub(LISTED + 1) {
            let delay = self.now() - self.sent[number].load(Ordering::Relaxed);
            self.delays.lock().push(delay as f64 / 1000.0);
        }
        self.version.fetch_max(version, Ordering::Relaxed);
        self.n_reconciles.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends updates, and waits until the last one was reconciled.
    async fn send(&self, sender: &Sender<Bytes>, lines: &[Bytes], phase: &Phase) {
        let began = tokio::time::Instant::now();
        for (at, line) in lines.iter().enumerate() {
            if let Some(rate) = phase.rate {
                tokio::time::sleep_until(began + Duration::from_secs(at as u64) / rate).await;
            }
            self.sent[phase.first + at].store(self.now(), Ordering::Relaxed);
            sender.send(line.clone()).await.expect("the watch is open");
        }
        let last = LISTED + phase.first + lines.len();
        while self.version.load(Ordering::Relaxed) < last {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Updates at a rate, or without pause.
struct Phase {
    name: &'static str,
    rate: Option<u32>,
    /// The number of its first update.
    first: usize,
}

/// Measures one side. `begin` starts its controller.
async fn measure(begin: impl FnOnce(kube::Client, Arc<Seen>)) -> Figures {
    let n_updates: usize = PHASES.iter().map(|(_, _, n_updates)| n_updates).sum();
    // Encoded before the measurement. Neighbours in time are no neighbours in the list.
    let lines: Vec<Bytes> = (0..n_updates)
        .map(|number| {
            let mut text = String::new();
            write_update(&mut text, number * 7919 % N_PODS, LISTED + 1 + number);
            text.into()
        })
        .collect();
    let (client, sender) = Feed::open(N_PODS);
    let seen = Arc::new(Seen {
        started: Instant::now(),
        sent: (0..n_updates).map(|_| AtomicU64::new(0)).collect(),
        n_reconciles: AtomicUsize::new(0),
        version: AtomicUsize::new(0),
        delays: Mutex::default(),
    });
    let (before, cpu_before, started) = (resident(), cpu_time(), Instant::now());
    begin(client, seen.clone());
    while seen.n_reconciles.load(Ordering::Relaxed) < N_PODS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut figures = vec![
        (
            "all reconciled once after, ms".into(),
            started.elapsed().as_secs_f64() * 1000.0,
        ),
        (
            "CPU for that, ms".into(),
            (cpu_time() - cpu_before) / 1000.0,
        ),
        ("resident after that, MB".into(), resident() - before),
    ];
    let mut first = 0;
    for (name, rate, n_updates) in PHASES {
        let phase = Phase { name, rate, first };
        seen.delays.lock().clear();
        let (cpu_before, began) = (cpu_time(), Instant::now());
        seen.send(&sender, &lines[first..first + n_updates], &phase)
            .await;
        let (cpu, took) = (cpu_time() - cpu_before, began.elapsed());
        let mut delays = std::mem::take(&mut *seen.delays.lock());
        delays.sort_by(f64::total_cmp);
        let name = phase.name;
        figures.extend([
            (
                format!("{name}: to reconcile, p50 µs"),
                delays[delays.len() / 2],
            ),
            (
                format!("{name}: to reconcile, p99 µs"),
                delays[delays.len() * 99 / 100],
            ),
            (
                format!("{name}: CPU of an update, µs"),
                cpu / n_updates as f64,
            ),
        ]);
        if rate.is_none() {
            let rate = n_updates as f64 / took.as_secs_f64();
            figures.push((format!("{name}: updates a second"), rate));
        }
        first += n_updates;
    }
    figures
}

pub(crate) fn measure_sdk() -> Figures {
    runtime().block_on(measure(|client, seen| {
        let context = Context::new(client).named("bench");
        let controller = Controller::for_kind(&context, typed::<Pod>())
            .workers(N_WORKERS.into())
            .reconcile_objects(move |pod: Arc<Pod>, _: Context| {
                seen.reconcile(&pod);
                async { Ok::<_, Error>(Action::done()) }
            });
        tokio::spawn(controller.run(std::future::pending()));
    }))
}

pub(crate) fn measure_kube() -> Figures {
    runtime().block_on(measure(|client, seen| {
        let config = controller::Config::default().concurrency(N_WORKERS);
        let pods: Api<Pod> = Api::all(client);
        let runs = kube::runtime::Controller::new(pods, Default::default())
            .with_config(config)
            .run(
                async |pod: Arc<Pod>, seen: Arc<Seen>| {
                    seen.reconcile(&pod);
                    Ok::<_, kube::Error>(controller::Action::await_change())
                },
                |_, _, _| controller::Action::requeue(Duration::from_secs(5)),
                seen,
            );
        tokio::spawn(runs.for_each(async |_| ()));
    }))
}
