//! The life of a Deployment step by step: which component does what, in which order.

use std::time::Duration;

use http::Method;
use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use mizzen_sdk::{Key, Object};

use super::faults::{SeededRandom, Write};
use super::picture::is_ready;
use super::scenario::{Action, Step};
use super::world::World;

const WEB: Step = Step {
    action: Action::Apply(include_str!("web.yaml")),
    seconds: 0,
};

/// The index of the first write of a user to a path. Names have a random suffix, so a part of the path is matched.
#[track_caller]
fn at(writes: &[Write], actor: &str, method: Method, part: &str) -> usize {
    let found = writes.iter().position(|write| {
        write.actor == actor && write.method == method && write.path.contains(part)
    });
    found.unwrap_or_else(|| panic!("{actor} never did {method} {part}; there is {writes:#?}"))
}

/// Asserts that these writes happened in this order.
#[track_caller]
fn in_order(writes: &[Write], steps: &[(&str, Method, &str)]) {
    let places: Vec<usize> = steps
        .iter()
        .map(|(actor, method, part)| at(writes, actor, method.clone(), part))
        .collect();
    assert!(places.is_sorted(), "{steps:?} were done at {places:?}");
}

async fn pods(world: &World) -> Vec<Object> {
    world
        .api
        .list(&PODS, "default", &Default::default())
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_running_pods_and_replaces_a_failed_one() {
    let mut world = World::new(SeededRandom::new(1)).await;
    world.start().await;
    world.pass(Duration::from_secs(5)).await;
    world.writes();

    world.perform(&WEB).await;
    world.pass(Duration::from_secs(5)).await;
    let writes = world.writes();
    in_order(
        &writes,
        &[
            ("deployment-controller", Method::POST, "/replicasets"),
            ("replicaset-controller", Method::POST, "/pods"),
            ("scheduler", Method::POST, "/binding"),
            ("kubelet", Method::PATCH, "/status"),
        ],
    );
    let deployment = world
        .api
        .get(&DEPLOYMENTS, &Key::new("default", "web"))
        .await
        .unwrap();
    let sets = world
        .api
        .list(&REPLICA_SETS, "default", &Default::default())
        .await
        .unwrap();
    let (before, set) = (pods(&world).await, &sets[0]);
    assert_eq!((sets.len(), before.len()), (1, 3));
    assert!(set.is_controlled_by(deployment.uid()));
    assert!(
        before
            .iter()
            .all(|pod| pod.is_controlled_by(set.uid()) && is_ready(pod))
    );
    assert!(
        before
            .iter()
            .all(|pod| !pod["spec"]["nodeName"].str().is_empty())
    );
    assert_eq!(deployment["status"]["availableReplicas"].int(), 3);

    let victim = &before[0];
    world
        .api
        .delete(&PODS, &victim.key(), &DeleteOptions::default())
        .await
        .unwrap();
    world.pass(Duration::from_secs(60)).await;
    let writes = world.writes();
    let going = format!("/pods/{}", victim.name());
    in_order(
        &writes,
        &[
            ("replicaset-controller", Method::POST, "/pods"),
            ("scheduler", Method::POST, "/binding"),
            ("kubelet", Method::DELETE, &going),
        ],
    );
    let after = pods(&world).await;
    assert_eq!(after.len(), 3);
    assert!(
        after
            .iter()
            .all(|pod| is_ready(pod) && pod.uid() != victim.uid())
    );
}
