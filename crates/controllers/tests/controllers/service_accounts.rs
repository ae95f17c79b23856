//! The service accounts controller.

use mizzen_sdk::resource::SERVICE_ACCOUNTS;

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_default_account_and_gets_it_back() {
    let cluster = Cluster::with(&["serviceaccount-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        .await;
    cluster.settle().await;
    let account = cluster.get(&SERVICE_ACCOUNTS, "shop/default").await;
    cluster.delete(&SERVICE_ACCOUNTS, "shop/default").await;
    cluster.settle().await;
    let again = cluster.get(&SERVICE_ACCOUNTS, "shop/default").await;
    assert_ne!(account.uid(), again.uid());
}
