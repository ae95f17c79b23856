//! The defaulting webhook of ovens.

use mizzen_testing::Cluster;

use shop_operator::api::oven::Oven;

use crate::fixtures::start;

const EMPTY: &str = "
apiVersion: shop.example.com/v1alpha1
kind: Oven
metadata: {name: empty}
spec: {}
";

#[tokio::test]
async fn an_oven_without_a_message_gets_one() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster.apply(EMPTY).await;
    let object: Oven = cluster.get("empty").await;
    assert_eq!(object.spec.message.as_deref(), Some("hello"));
}
