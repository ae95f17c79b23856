//! The operator in a cluster of a test.

use mizzen_sdk::webhook::Endpoint;
use mizzen_testing::Cluster;

use shop_operator::{api, manager, webhooks};

/// Runs the operator in a cluster: its kinds, webhooks and controllers.
pub async fn start(cluster: &Cluster) {
    for definition in api::definitions() {
        let text = serde_json::to_string(&definition).unwrap();
        cluster.apply(&text).await;
    }
    if let Some(server) = webhooks::server().unwrap() {
        let endpoint = Endpoint::service("default", "shop-operator-webhook");
        let client = cluster.client();
        server.apply(&client, &endpoint, "").await.unwrap();
        cluster.serve_webhooks("shop-operator-webhook.default.svc", move |request| {
            let server = server.clone();
            async move { server.handle(request).await }
        });
    }
    cluster.run_manager("shop-operator", manager);
}
