//! Many clients and watches for a while: `mizzen bench --sustain`, which fails if a write or an event is lost, or a limit
//! exceeded. `docs/reliability.md` has the long run.

use serde_json::Value;
use tokio::time::timeout;

use crate::process::{Home, STEP_TIMEOUT, command};

/// Runs the bench for `seconds` with `limits`. Returns whether it succeeded, and its report.
async fn sustain(home: &Home, seconds: f64, limits: &[String]) -> (bool, Value) {
    let seconds = format!("--seconds={seconds}");
    let load = [
        "bench",
        "--json",
        "--sustain=200",
        "--clients=20",
        "--objects=50",
        "--watchers=100",
        &seconds,
    ];
    let arguments: Vec<&str> = load
        .into_iter()
        .chain(limits.iter().map(String::as_str))
        .collect();
    let bench = command(&arguments, &home.kubeconfig()).output();
    let output = timeout(STEP_TIMEOUT, bench)
        .await
        .expect("ends in time")
        .unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.success(), report)
}

#[tokio::test]
async fn a_sustained_load_loses_no_write_and_no_event() {
    let home = Home::on_disk();
    let process = home.start().await;
    // A machine that runs other tests, too, does not exceed these.
    let limits = [
        "--max-p99=20000".to_owned(),
        "--max-memory-growth=256".to_owned(),
        format!("--server-pid={}", process.pid()),
    ];
    let (succeeded, report) = sustain(&home, 2.0, &limits).await;
    assert!(succeeded, "{}", report["failures"]);
    let outcomes = report["outcomes"].as_array().unwrap();
    let of = |verb: &str| {
        let named = |outcome: &&Value| outcome["name"].as_str().unwrap().ends_with(verb);
        let operations = outcomes
            .iter()
            .filter(named)
            .map(|it| it["operations"].as_u64());
        operations.map(Option::unwrap).sum::<u64>()
    };
    assert!((300..=400).contains(&of("/patch")), "{report}");
    assert!(of("/get") > 10, "{report}");
    assert!(of("/late") > 10, "{report}");

    let (succeeded, report) = sustain(&home, 1.0, &["--max-p99=0.001".to_owned()]).await;
    assert!(!succeeded, "{report}");
    let message = report["failures"][0]["message"].as_str().unwrap();
    assert!(message.contains("p99 of sustained-"), "{message}");
    process.stop().await;
}
