//! Two whole control planes on one etcd: when the leader is killed the other one leads, and nothing is done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::etcd_server::{Options, installed};
use crate::process::{Home, STEP_TIMEOUT};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const N_PODS: usize = 30;
/// Between two requests of a client that waits.
const PAUSE: Duration = Duration::from_millis(200);
/// The default lease, two attempts to acquire it, and the work itself on a busy machine.
const FAILOVER: Duration = Duration::from_secs(40);

#[tokio::test]
async fn the_other_server_leads_after_the_leader_was_killed_and_nothing_is_done_twice() {
    let Some(etcd) = installed().into_iter().next() else {
        return;
    };
    let etcd = etcd.start(Options::default()).await;
    let home = Home::on_disk()
        .whole()
        .with("--etcd-servers")
        .with(etcd.endpoint(0));
    let first = home.start().await;
    let second = home.start().await;
    let client = second.admin().await;
    let holder = async |name: &str| {
        let lease = client.get(&format!("{LEASES}/{name}")).await.expect(200);
        lease.json()["spec"]["holderIdentity"].to_string()
    };
    let leaders = [
        holder("kube-controller-manager").await,
        holder("kube-scheduler").await,
    ];
    let version = client.get(PODS).await.expect(200).json();
    let version = version["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let mut events = client.watch(&path).await;

    let template = json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "a", "image": "a" }] }
    });
    let set = json!({ "metadata": { "name": "web" }, "spec": {
        "replicas": N_PODS, "selector": { "matchLabels": { "app": "web" } }, "template": template
    } });
    client.post(REPLICA_SETS, set.to_string()).await.expect(201);
    // The leader dies in the middle of its work.
    let mut created = BTreeSet::new();
    while created.is_empty() {
        created.insert(events.next_name().await);
    }
    first.kill().await;
    let killed = Instant::now();
    let own = format!("{REPLICA_SETS}/web");
    let is_ready = async {
        loop {
            let set = client.get(&own).await.expect(200).json();
            let has_led = holder("kube-scheduler").await != leaders[1];
            if has_led && set["status"]["readyReplicas"] == N_PODS {
                return;
            }
            sleep(PAUSE).await;
        }
    };
    timeout(FAILOVER, is_ready).await.expect("the other leads");
    assert_ne!(holder("kube-controller-manager").await, leaders[0]);
    eprintln!("the other server led after {:?}", killed.elapsed());

    // Every pod that was ever made is there.
    let pods = client.get(PODS).await.expect(200).json();
    assert_eq!(pods["items"].as_array().unwrap().len(), N_PODS);
    client.post(PODS, LAST).await.expect(201);
    let count = async {
        loop {
            let event = events.next_name().await;
            assert!(!event.starts_with("DELETED"), "{event}");
            if event == "ADDED last" {
                return;
            }
            created.extend(event.starts_with("ADDED").then_some(event));
        }
    };
    timeout(STEP_TIMEOUT, count).await.expect("all events");
    assert_eq!(created.len(), N_PODS);
}

const LAST: &str =
    r#"{"metadata":{"name":"last"},"spec":{"containers":[{"name":"a","image":"a"}]}}"#;
