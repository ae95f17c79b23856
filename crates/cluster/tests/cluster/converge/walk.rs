//! The life of a Deployment step by step: which component does what, in which order.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ObjectMeta;
use mizzen_testing::Step;

use super::{cluster, is_ready, pass};

/// Asserts that these components did this in this order. Names have a random suffix, so the beginning of the object and a
/// part of what happened are matched.
#[track_caller]
fn in_order(steps: &[Step], expected: &[(&str, &str, &str)]) {
    let at = |(actor, object, what): &(&str, &str, &str)| {
        let found = steps.iter().position(|step| {
            &*step.actor == *actor && step.object.starts_with(object) && step.what.contains(what)
        });
        let lines = || {
            steps
                .iter()
                .map(|step| format!("{step}\n"))
                .collect::<String>()
        };
        found.unwrap_or_else(|| panic!("no step {actor} {object} {what}; there are\n{}", lines()))
    };
    let places: Vec<usize> = expected.iter().map(at).collect();
    assert!(places.is_sorted(), "{expected:?} happened at {places:?}");
}

/// The UID of the first owner.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners.map(|owner| owner.uid.clone()).next()
}

#[tokio::test]
async fn a_deployment_gets_running_pods_and_replaces_a_failed_one() {
    let cluster = cluster().await;
    let n_before = cluster.steps().len();
    cluster.apply(include_str!("web.yaml")).await;
    pass(&cluster, 5).await;
    in_order(
        &cluster.steps()[n_before..],
        &[
            ("deployment-controller", "replicasets/", "created"),
            ("replicaset-controller", "pods/", "created"),
            ("scheduler", "pods/", "binding"),
            ("kubelet", "pods/", "status"),
        ],
    );
    let deployment = cluster.get::<Deployment>("web").await;
    let (before, sets) = (
        cluster.list::<Pod>().await,
        cluster.list::<ReplicaSet>().await,
    );
    assert_eq!((sets.len(), before.len()), (1, 3));
    let set = &sets[0];
    assert_eq!(owner(&set.metadata), deployment.metadata.uid);
    for pod in &before {
        assert_eq!(owner(&pod.metadata), set.metadata.uid);
        assert!(is_ready(pod), "{pod:?}");
    }
    let status = deployment.status.unwrap();
    assert_eq!(status.available_replicas, Some(3));

    let victim = &before[0];
    let name = victim.metadata.name.as_deref().unwrap();
    let n_before = cluster.steps().len();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.delete(name, &Default::default()).await.unwrap();
    pass(&cluster, 60).await;
    in_order(
        &cluster.steps()[n_before..],
        &[
            ("replicaset-controller", "pods/", "created"),
            ("scheduler", "pods/", "binding"),
            ("kubelet", &format!("pods/{name}"), "deleted"),
        ],
    );
    let after = cluster.list::<Pod>().await;
    assert_eq!(after.len(), 3);
    let is_new = |pod: &Pod| is_ready(pod) && pod.metadata.uid != victim.metadata.uid;
    assert!(after.iter().all(is_new));
}
