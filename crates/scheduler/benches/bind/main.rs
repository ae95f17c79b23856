//! Scheduling throughput: filter, score, bind and event, through the API server in the same process.
//!
//! Claim: with 5,000 nodes at least 5,000 pods a second are bound with the default plugins, and 2,200 with
//! pod anti-affinity or topology spread constraints.
//!
//!     cargo bench -p mizzen-scheduler --bench bind -- [NODES [PODS]]

#![expect(
    clippy::disallowed_methods,
    reason = "a bench measures the machine's own time"
)]

mod case;

use std::time::{Duration, Instant};

use case::{CASES, Case};
use mimalloc::MiMalloc;
use mizzen_scheduler::{Options, start};
use mizzen_sdk::metrics::Families;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse().ok())
        .collect();
    // Small defaults, so that a debug build ends soon.
    let n_nodes = numbers.first().copied().unwrap_or(100);
    let n_pods = numbers.get(1).copied().unwrap_or(500);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    println!(
        "{:<24} {:>7} {:>7} {:>9} {:>12} {:>12}",
        "case", "nodes", "pods", "seconds", "pods/s", "µs in loop"
    );
    for case in CASES {
        runtime.block_on(run(case, n_nodes, n_pods));
    }
}

/// Creates nodes and pods, starts a scheduler and waits until all pods are bound.
async fn run(case: &Case, n_nodes: usize, n_pods: usize) {
    let cluster = case::Cluster::start(case, n_nodes, n_pods).await;
    let began = Instant::now();
    let scheduler = start(Options::new(cluster.client())).expect("nothing is wrong with it");
    scheduler.synced().await;
    let synced = Instant::now();
    while cluster.n_bound() < n_pods {
        assert!(
            began.elapsed() < Duration::from_secs(600),
            "{}: pods are left",
            case.name
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = synced.elapsed().as_secs_f64();
    let loop_micros = case::micros_in_loop(&Families::of(&[&scheduler]).to_string());
    let rate = n_pods as f64 / took;
    println!(
        "{:<24} {n_nodes:>7} {n_pods:>7} {took:>9.3} {rate:>12.0} {loop_micros:>12.1}",
        case.name
    );
}
