//! A write that etcd has committed without the server hearing of it.

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::client::Client;
use crate::etcd_server::{Options, installed};
use crate::linearizable::network::{Between, Cut, End, Network};
use crate::process::{Home, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const COUNT: &str = "count/configmaps";
/// Between two requests of a client that waits.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

fn config_map(name: &str) -> String {
    json!({ "metadata": { "name": name } }).to_string()
}

/// What of the quota is used.
async fn used(client: &Client) -> Value {
    let quota = client.get(&format!("{QUOTAS}/q")).await.expect(200).json();
    quota["status"]["used"][COUNT].clone()
}

#[tokio::test]
async fn a_quota_stays_charged_for_a_write_that_etcd_did_not_answer() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let (endpoint, network) = (etcd.endpoint(0), Network::new());
        let target = endpoint.rsplit(':').next().unwrap().parse().unwrap();
        let port = network.port(End::Server(0), 0, target).await;
        // Quotas are reached directly, and ConfigMaps through the network.
        let through = format!("--etcd-servers-overrides=/configmaps#http://127.0.0.1:{port}");
        let home = Home::on_disk().with("--etcd-servers").with(endpoint);
        let process = home.with(through).start().await;
        let client = process.admin().await;
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { COUNT: "5" } } });
        client.post(QUOTAS, quota.to_string()).await.expect(201);
        let status = json!({ "status": { "hard": { COUNT: "5" }, "used": { COUNT: "0" } } });
        let path = format!("{QUOTAS}/q/status");
        let patched = client.call("PATCH", &path, status.to_string()).await;
        patched.expect(200);

        network.cut(Between::Server(0), Cut::HoldAnswers);
        let failed = client.post(CONFIG_MAPS, config_map("a")).await.expect(504);
        assert!(
            failed.text().contains("context deadline exceeded"),
            "{}",
            failed.text()
        );
        assert_eq!(used(&client).await, "1", "it may be stored");

        network.heal();
        let own = format!("{CONFIG_MAPS}/a");
        let stored = async {
            while client.get(&own).await.status != 200 {
                sleep(PAUSE).await;
            }
        };
        timeout(STEP_TIMEOUT, stored).await.expect("it is stored");
        // A write that is known to be rejected is not charged.
        client.post(CONFIG_MAPS, config_map("a")).await.expect(409);
        assert_eq!(used(&client).await, "1");
        process.stop().await;
    }
}
