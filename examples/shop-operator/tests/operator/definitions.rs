//! The CustomResourceDefinitions and the manifests.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use mizzen_testing::Cluster;

use shop_operator::api;
use shop_operator::manifests::manifests;

use crate::fixtures::start;

#[tokio::test]
async fn the_kinds_are_served() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.settle().await;
    for definition in api::definitions() {
        let served: CustomResourceDefinition = cluster.get(&definition.name_any()).await;
        let conditions = served.status.and_then(|status| status.conditions);
        let mut conditions = conditions.unwrap_or_default().into_iter();
        let is_established = |type_: &str, status: &str| (type_, status) == ("Established", "True");
        assert!(conditions.any(|it| is_established(&it.type_, &it.status)));
    }
}

#[test]
fn the_manifests_are_current() {
    // The first run writes them. Afterwards the README says how to.
    if !Path::new("config/default").exists() {
        manifests().write("config").unwrap();
    }
    if let Err(error) = manifests().check("config") {
        panic!("{error}\nrun `cargo run --bin shop-operator-manifests`");
    }
}
