//! The root CA publisher.

use mizzen_sdk::resource::CONFIG_MAPS;

use crate::{cluster_of, settle};

const KEY: &str = "default/kube-root-ca.crt";

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_the_certificate_and_keeps_it() {
    let cluster = cluster_of(&["root-ca-certificate-publisher-controller"])
        .tune_controllers(|options| options.root_ca = Some("CA".into()))
        .start()
        .await;
    settle(&cluster).await;
    assert_eq!(
        cluster.object(&CONFIG_MAPS, KEY).await["data"]["ca.crt"].str(),
        "CA"
    );
    cluster
        .change(&CONFIG_MAPS, KEY, |config| {
            config.entry("data").set("ca.crt", "mine")
        })
        .await;
    settle(&cluster).await;
    let mended = cluster.object(&CONFIG_MAPS, KEY).await;
    assert_eq!(mended["data"]["ca.crt"].str(), "CA");
    // The cache drops managedFields, but an update from it does not remove them on the server.
    assert_ne!(mended["metadata"]["managedFields"].list(), []);
    cluster.delete(&CONFIG_MAPS, KEY).await;
    settle(&cluster).await;
    let config = cluster.object(&CONFIG_MAPS, KEY).await;
    assert!(
        config
            .annotation("kubernetes.io/description")
            .unwrap()
            .starts_with("Contains a CA bundle")
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_certificate_nothing_is_published() {
    let cluster = cluster_of(&["root-ca-certificate-publisher-controller"])
        .tune_controllers(|options| options.root_ca = None)
        .start()
        .await;
    settle(&cluster).await;
    assert_eq!(cluster.objects(&CONFIG_MAPS, "default").await, []);
}
