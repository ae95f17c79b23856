//! A control plane whose wall clock steps, and one that was suspended.

use std::collections::BTreeMap;
use std::time::Duration;

use mizzen_sdk::Key;
use mizzen_sdk::resource::{DEPLOYMENTS, JOBS, LEASES, NODES, PODS};
use mizzen_value::Value;

use super::faults::SeededRandom;
use super::picture::is_ready;
use super::world::World;

const HOUR: i64 = 3600;

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: flaky, namespace: default}
spec:
  backoffLimit: 3
  template:
    metadata: {annotations: {mizzen.dev/simulate: \"run 5s, exit 1\"}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
";

async fn pass(world: &World, seconds: u64) {
    world.pass(Duration::from_secs(seconds)).await;
}

/// A cluster with a deployment of three pods that are ready.
async fn world() -> World {
    let mut world = World::new(SeededRandom::new(1)).await;
    world.start().await;
    pass(&world, 5).await;
    world.apply(include_str!("web.yaml")).await;
    pass(&world, 60).await;
    world
}

/// The pods by name: uid, phase, and whether they are ready.
async fn pods(world: &World) -> BTreeMap<String, (String, String, bool)> {
    let pods = world
        .api
        .list(&PODS, "default", &Default::default())
        .await
        .unwrap();
    let row = |pod: &mizzen_sdk::Object| {
        (
            pod.uid().to_string(),
            pod["status"]["phase"].str().to_string(),
            is_ready(pod),
        )
    };
    pods.iter()
        .map(|pod| (pod.name().to_string(), row(pod)))
        .collect()
}

/// The conditions and taints of unhealthy nodes.
async fn ailments(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for node in world
        .api
        .list(&NODES, "", &Default::default())
        .await
        .unwrap()
    {
        let ready = node["status"]["conditions"]
            .list()
            .iter()
            .find(|one| one["type"].str() == "Ready");
        let status = ready.map_or("", |ready| ready["status"].str());
        if status != "True" || !node["spec"]["taints"].is_empty() {
            found.push(format!(
                "{} Ready={status} {:?}",
                node.name(),
                node["spec"]["taints"]
            ));
        }
    }
    found
}

/// The time since the renewal of a lease, by the wall clock.
async fn lease_age(world: &World, node: &str) -> i64 {
    let lease = world
        .api
        .get(&LEASES, &Key::new("kube-node-lease", node))
        .await
        .unwrap();
    let renewed = mizzen_value::time::to_unix(lease["spec"]["renewTime"].str()).unwrap();
    mizzen_value::clock::Clock::now(&world.clock).0 - renewed
}

#[tokio::test(start_paused = true)]
async fn a_clock_step_evicts_no_pod_and_loses_no_node() {
    for step in [-HOUR, HOUR] {
        let world = world().await;
        let before = pods(&world).await;
        assert_eq!(before.len(), 3);
        assert!(before.values().all(|(_, _, ready)| *ready), "{before:?}");
        world.clock.step(step);
        for second in 0..150 {
            pass(&world, 1).await;
            assert_eq!(ailments(&world).await, [""; 0], "{step}, after {second} s");
        }
        assert_eq!(pods(&world).await, before, "{step}");
        for node in ["node-0", "node-1"] {
            let age = lease_age(&world, node).await;
            assert!((0..=11).contains(&age), "{node}: {age}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues_through_a_clock_step() {
    for step in [-HOUR, HOUR] {
        let world = world().await;
        world.apply(include_str!("web-v2.yaml")).await;
        // In the middle of the rollout.
        world.pass(Duration::from_millis(20)).await;
        world.clock.step(step);
        pass(&world, 60).await;
        let deployment = world
            .api
            .get(&DEPLOYMENTS, &Key::new("default", "web"))
            .await
            .unwrap();
        let wanted = deployment["spec"]["replicas"].int();
        let status = &deployment["status"];
        for field in [
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "replicas",
        ] {
            assert_eq!(
                status[field].int(),
                wanted,
                "{field} after {step}: {status:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_back_off_of_a_job_ends_despite_a_clock_step() {
    for step in [-HOUR, HOUR] {
        let world = world().await;
        world.apply(JOB).await;
        // The first pod has failed, the job waits.
        pass(&world, 8).await;
        world.clock.step(step);
        // Three more failures: at most 10 + 20 + 40 s of back-off, and what the pods take.
        pass(&world, 130).await;
        let job = world
            .api
            .get(&JOBS, &Key::new("default", "flaky"))
            .await
            .unwrap();
        let conditions: &[Value] = job["status"]["conditions"].list();
        let failed = conditions
            .iter()
            .any(|one| one["type"].str() == "Failed" && one["status"].str() == "True");
        assert!(failed, "{step}: {:?}", job["status"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_an_older_clock_keeps_pods_running() {
    for step in [-HOUR, HOUR] {
        let mut world = world().await;
        let before = pods(&world).await;
        world.clock.step(step);
        world.start().await;
        for _ in 0..30 {
            pass(&world, 5).await;
            assert_eq!(pods(&world).await, before, "{step}");
        }
        assert_eq!(ailments(&world).await, [""; 0], "{step}");
    }
}

/// Every timer is an hour late at once, and the wall clock as well: a suspend that the monotonic clock counts.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_pods_run_and_nodes_are_ready() {
    let world = world().await;
    let before = pods(&world).await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    pass(&world, 120).await;
    assert_eq!(ailments(&world).await, [""; 0]);
    assert_eq!(pods(&world).await, before);
    world.apply(include_str!("web-v2.yaml")).await;
    pass(&world, 60).await;
    let deployment = world
        .api
        .get(&DEPLOYMENTS, &Key::new("default", "web"))
        .await
        .unwrap();
    assert_eq!(
        deployment["status"]["updatedReplicas"].int(),
        deployment["spec"]["replicas"].int()
    );
}
