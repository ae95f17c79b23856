//! Many clients and watches for a while: `mizzen bench --sustain`, which fails if a write or an event is lost.
//! `docs/reliability.md` has the long run.

use serde_json::Value;
use tokio::time::timeout;

use crate::process::{Home, STEP_TIMEOUT, command};

#[tokio::test]
async fn a_sustained_load_loses_no_write_and_no_event() {
    let home = Home::on_disk();
    let process = home.start().await;
    let load = [
        "--sustain=200",
        "--clients=20",
        "--objects=50",
        "--watchers=100",
    ];
    let arguments = [&["bench", "--json", "--seconds=2"][..], &load].concat();
    let bench = command(&arguments, &home.kubeconfig()).output();
    let output = timeout(STEP_TIMEOUT, bench)
        .await
        .expect("ends in time")
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{}", report["failures"]);
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
    process.stop().await;
}
