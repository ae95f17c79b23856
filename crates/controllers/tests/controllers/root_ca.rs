//! The root CA publisher.

use mizzen_sdk::resource::CONFIG_MAPS;

use crate::cluster::Cluster;

const KEY: &str = "default/kube-root-ca.crt";

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_the_certificate_and_keeps_it() {
    let cluster = Cluster::set_up(&["root-ca-certificate-publisher-controller"], |options| {
        options.root_ca = Some("CA".into());
    })
    .await;
    cluster.settle().await;
    assert_eq!(
        cluster.get(&CONFIG_MAPS, KEY).await["data"]["ca.crt"].str(),
        "CA"
    );
    cluster
        .change(&CONFIG_MAPS, KEY, |config| {
            config.entry("data").set("ca.crt", "mine")
        })
        .await;
    cluster.settle().await;
    let mended = cluster.get(&CONFIG_MAPS, KEY).await;
    assert_eq!(mended["data"]["ca.crt"].str(), "CA");
    // The cache drops managedFields, but an update from it does not remove them on the server.
    assert_ne!(mended["metadata"]["managedFields"].list(), []);
    cluster.delete(&CONFIG_MAPS, KEY).await;
    cluster.settle().await;
    let config = cluster.get(&CONFIG_MAPS, KEY).await;
    assert!(
        config
            .annotation("kubernetes.io/description")
            .unwrap()
            .starts_with("Contains a CA bundle")
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_certificate_nothing_is_published() {
    let cluster = Cluster::with(&["root-ca-certificate-publisher-controller"]).await;
    cluster.settle().await;
    assert_eq!(cluster.list(&CONFIG_MAPS, "default").await, []);
}
