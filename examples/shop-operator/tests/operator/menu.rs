//! The controller of menus in a whole cluster, on virtual time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams};
use mizzen_sdk::condition;
use mizzen_testing::{Cluster, Explore};

use shop_operator::api::menu::Menu;

use crate::fixtures::start;

const SAMPLE: &str = include_str!("../../config/samples/shop_v1alpha1_menu.yaml");
const NAME: &str = "menu-sample";

#[tokio::test]
async fn a_menu_gets_a_config_map_and_is_ready() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.apply(SAMPLE).await;
    cluster.settle().await;
    let object: Menu = cluster.get(NAME).await;
    let status = object.status.unwrap();
    assert!(condition::is_true(&status.conditions, "Ready"));
    assert_eq!(status.observed_generation, object.metadata.generation);
    let config_map: ConfigMap = cluster.get(NAME).await;
    let data = config_map.data.unwrap();
    assert_eq!(data["message"], object.spec.message.unwrap());
}

#[tokio::test]
async fn a_deleted_config_map_is_created_again() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.apply(SAMPLE).await;
    cluster.settle().await;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let options = DeleteParams::default();
    config_maps.delete(NAME, &options).await.unwrap();
    cluster.settle().await;
    assert!(cluster.find::<ConfigMap>(NAME).await.is_some());
}

#[tokio::test]
async fn a_config_map_of_another_owner_is_left_alone() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    let foreign = "{apiVersion: v1, kind: ConfigMap, metadata: {name: menu-sample}}";
    cluster.apply(foreign).await;
    cluster.apply(SAMPLE).await;
    cluster.settle().await;
    let object: Menu = cluster.get(NAME).await;
    let status = object.status.unwrap();
    let ready = condition::find(&status.conditions, "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("False", "Exists"));
    let config_map: ConfigMap = cluster.get(NAME).await;
    assert_eq!(config_map.data, None);
}

/// Conflicts, errors after the write, broken watches and killed controllers, with 20 seeds.
#[test]
fn a_menu_is_ready_whatever_happens_to_the_controller() {
    let server_alone = Cluster::builder().server_only();
    Explore::new(server_alone).run(async |cluster: &Cluster| {
        start(cluster).await;
        cluster.apply(SAMPLE).await;
        cluster.advance(Duration::from_secs(60)).await;
    });
}
