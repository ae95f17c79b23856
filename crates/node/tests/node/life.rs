//! Pods live and die on a node.

use mizzen_sdk::Key;
use mizzen_sdk::resource::PODS;

use crate::cluster::{Cluster, show};

const WEB: &str = "containers: [{name: web, image: web}]";

#[tokio::test(start_paused = true)]
async fn a_pod_gets_ready() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "", WEB).await;
    cluster.pass(1).await;
    let pod = cluster.pod("web").await;
    assert_eq!(show(&pod), "Running ready=True web=running");
    assert!(!pod["status"]["podIP"].str().is_empty());
    assert_eq!(pod["status"]["hostIP"].str(), "127.0.0.1");
    let types: Vec<&str> =
        pod["status"]["conditions"].list().iter().map(|condition| condition["type"].str()).collect();
    assert_eq!(
        types,
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    );
    assert_eq!(
        cluster.told("web").await,
        [
            "Normal Pulled spec.containers{web} Container image \"web\" already present on machine x1",
            "Normal Created spec.containers{web} Container created x1",
            "Normal Started spec.containers{web} Container started x1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_ready_with_two_writes() {
    let cluster = Cluster::with(1).await;
    let made = cluster.run_pod("web", "", WEB).await;
    cluster.pass_millis(3).await;
    let creating = cluster.pod("web").await;
    assert_eq!(show(&creating), "Pending ready=False web=ContainerCreating");
    cluster.pass(5).await;
    let running = cluster.pod("web").await;
    let version = |pod: &mizzen_sdk::Object| pod.version().parse::<u64>().unwrap();
    assert!(version(&made) < version(&creating) && version(&creating) < version(&running));
    cluster.pass(3600).await;
    assert_eq!(cluster.pod("web").await.version(), running.version());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_when_its_containers_have_ended() {
    let cluster = Cluster::with(1).await;
    cluster.run_pod("web", "mizzen.dev/simulate: \"run, stop 5s\"", WEB).await;
    cluster.pass(1).await;
    cluster.delete_pod("web", None).await;
    cluster.pass(4).await;
    assert_eq!(show(&cluster.pod("web").await), "Running ready=True web=running");
    cluster.pass(2).await;
    assert!(cluster.find(&PODS, &Key::new("default", "web")).await.is_none());
}
