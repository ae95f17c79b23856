//! Real time: a runtime with threads, and clients outside the process.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mizzen_testing::{Cluster, assert_status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_runs_on_threads_and_real_time() {
    let cluster = Cluster::start().await;
    cluster.apply(super::start::WEB).await;
    cluster
        .until_object("web", |web: &Deployment| {
            web.status
                .as_ref()
                .is_some_and(|status| status.ready_replicas == Some(3))
        })
        .await;
    cluster.settle().await;
    assert_status!(cluster, Deployment, "web", {"readyReplicas": 3});
}

#[tokio::test]
async fn a_client_outside_the_process_has_a_kubeconfig() {
    let cluster = Cluster::start().await;
    cluster.settle().await;
    let config = Kubeconfig::from_yaml(&cluster.kubeconfig().await).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .unwrap();
    assert!(config.cluster_url.host() == Some("127.0.0.1"));
    let nodes: Api<Node> = Api::all(Client::try_from(config).unwrap());
    assert_eq!(
        nodes.list(&Default::default()).await.unwrap().items.len(),
        1
    );
}
