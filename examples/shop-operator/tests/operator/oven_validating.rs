//! The validating webhook of ovens.

use mizzen_testing::Cluster;

use crate::fixtures::start;

const BLANK: &str = "
apiVersion: shop.example.com/v1alpha1
kind: Oven
metadata: {name: blank}
spec: {message: ' '}
";

#[tokio::test]
async fn an_oven_with_a_blank_message_is_rejected() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    let error = cluster.try_apply(BLANK).await.unwrap_err().to_string();
    let expected = "spec.message: Invalid value: \" \": must not be blank";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn a_valid_oven_is_accepted() {
    let cluster = Cluster::start().await;
    start(&cluster).await;
    cluster
        .apply(include_str!("../../config/samples/shop_v1alpha1_oven.yaml"))
        .await;
}
