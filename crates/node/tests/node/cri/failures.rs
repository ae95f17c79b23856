//! Calls of the runtime that fail, with or without an effect. No container or sandbox is lost, and none is doubled.

use super::events::{Failure, MadeUpRuntime, Node};

/// Runs a pod while a call fails. Returns the IDs of the containers and the sandboxes that the runtime has then.
async fn run(name: &'static str, method: &'static str, failure: Failure) -> (Node, String) {
    let runtime = MadeUpRuntime::default();
    runtime.0.lock().failures.push((method, failure));
    let node = Node::start(name, runtime).await;
    node.run_pod(name).await;
    let left = {
        let state = node.runtime.0.lock();
        assert!(state.failures.is_empty(), "{method} was not called");
        let ids = state.containers.keys().chain(state.sandboxes.keys());
        ids.cloned().collect::<Vec<_>>().join(" ")
    };
    (node, left)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_although_its_start_has_failed_is_not_started_again() {
    let (node, left) = run("fails-a", "StartContainer", Failure::ResponseLost).await;
    assert_eq!(left, "container-0 sandbox-0");
    assert_eq!(node.runtime.n_calls("StartContainer"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_not_started_is_removed_and_created_again() {
    let (_node, left) = run("fails-b", "StartContainer", Failure::Refused).await;
    assert_eq!(left, "container-1 sandbox-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_status_cannot_be_read_is_read_again() {
    let (node, left) = run("fails-c", "ContainerStatus", Failure::Refused).await;
    assert_eq!(left, "container-0 sandbox-0");
    assert_eq!(node.runtime.n_calls("CreateContainer"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_creation_got_no_response_does_not_keep_its_name() {
    let (_node, left) = run("fails-d", "CreateContainer", Failure::ResponseLost).await;
    assert_eq!(left, "container-1 sandbox-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_address_cannot_be_read_is_removed() {
    let (_node, left) = run("fails-e", "PodSandboxStatus", Failure::Refused).await;
    assert_eq!(left, "container-0 sandbox-1");
}
