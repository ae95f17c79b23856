//! The service accounts controller.

use mizzen_sdk::resource::SERVICE_ACCOUNTS;

use crate::{settle, start};

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_default_account_and_gets_it_back() {
    let cluster = start(&["serviceaccount-controller"]).await;
    cluster
        .create("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        .await;
    settle(&cluster).await;
    let account = cluster.object(&SERVICE_ACCOUNTS, "shop/default").await;
    cluster.delete(&SERVICE_ACCOUNTS, "shop/default").await;
    settle(&cluster).await;
    let again = cluster.object(&SERVICE_ACCOUNTS, "shop/default").await;
    assert_ne!(account.uid(), again.uid());
}
