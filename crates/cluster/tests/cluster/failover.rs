//! Two whole control planes on one etcd: when the leader is killed or paused the other one leads, and nothing is done
//! twice.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Client, Events};
use crate::etcd_server::{Cluster, Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LOOPS: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const N_PODS: usize = 30;
/// Between two requests of a client that waits.
const PAUSE: Duration = Duration::from_millis(200);
/// The default lease: a candidate waits for so long since it has observed the last renewal.
const LEASE: Duration = Duration::from_secs(15);
/// The retry period of 2 s with its jitter. A candidate observes a renewal so much later, and tries to acquire the lease
/// so much later than it could.
const MAX_RETRY: Duration = Duration::from_millis(4_400);
/// How late a candidate is on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

/// The second of two control planes on one etcd, of which the first leads.
struct Standby {
    _second: Process,
    client: Client,
    /// The holders of both leases.
    leaders: [String; 2],
    _home: Home,
    _etcd: Cluster,
}

impl Standby {
    /// The process that leads, and the other one.
    async fn start() -> Option<(Process, Standby)> {
        let etcd = installed().into_iter().next()?;
        let etcd = etcd.start(Options::default()).await;
        let home = Home::on_disk()
            .whole()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        let first = home.start().await;
        let second = home.start().await;
        let client = second.admin().await;
        let standby = Standby {
            leaders: holders(&client).await,
            _second: second,
            client,
            _home: home,
            _etcd: etcd,
        };
        Some((first, standby))
    }

    /// A watch of the pods that are created from now on.
    async fn watch_pods(&self) -> Events {
        let version = self.client.get(PODS).await.expect(200).json();
        let version = version["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{PODS}?watch=true&resourceVersion={version}");
        self.client.watch(&path).await
    }

    async fn create_replica_set(&self, name: &str) {
        let template = json!({
            "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "a", "image": "a" }] }
        });
        let set = json!({ "metadata": { "name": name }, "spec": {
            "replicas": N_PODS, "selector": { "matchLabels": { "app": name } },
            "template": template
        } });
        let created = self.client.post(REPLICA_SETS, set.to_string()).await;
        created.expect(201);
    }

    async fn wait_until_pods_are_ready(&self, name: &str) {
        let own = format!("{REPLICA_SETS}/{name}");
        let is_ready = async {
            while self.client.get(&own).await.expect(200).json()["status"]["readyReplicas"]
                != N_PODS
            {
                sleep(PAUSE).await;
            }
        };
        timeout(STEP_TIMEOUT, is_ready).await.expect("its pods run");
    }

    /// Waits until this one leads, for as long as that may take.
    async fn wait_until_it_leads(&self) {
        let began = Instant::now();
        let has_led = async {
            loop {
                let holders = holders(&self.client).await;
                if holders
                    .iter()
                    .zip(&self.leaders)
                    .all(|(now, then)| now != then)
                {
                    return;
                }
                sleep(PAUSE).await;
            }
        };
        let limit = LEASE + 2 * MAX_RETRY + SLACK;
        timeout(limit, has_led).await.expect("the other leads");
        eprintln!("the other server led after {:?}", began.elapsed());
    }

    /// Of the events, up to a pod that is made now, none is a deletion. Returns which pods were created.
    async fn created_pods(&self, events: &mut Events) -> BTreeSet<String> {
        self.client.post(PODS, LAST).await.expect(201);
        let mut created = BTreeSet::new();
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
        created
    }
}

/// The holders of the leases of loops and scheduler.
async fn holders(client: &Client) -> [String; 2] {
    let mut holders = [LOOPS, SCHEDULER].map(str::to_owned);
    for holder in &mut holders {
        let lease = client.get(&format!("{LEASES}/{holder}")).await.expect(200);
        *holder = lease.json()["spec"]["holderIdentity"].to_string();
    }
    holders
}

#[tokio::test]
async fn the_other_server_leads_after_the_leader_was_killed_and_nothing_is_done_twice() {
    let Some((first, standby)) = Standby::start().await else {
        return;
    };
    let mut events = standby.watch_pods().await;
    standby.create_replica_set("web").await;
    // The leader dies in the middle of its work.
    let first_pod = events.next_name().await;
    first.kill().await;
    standby.wait_until_it_leads().await;
    standby.wait_until_pods_are_ready("web").await;

    // Every pod that was ever made is there.
    let pods = standby.client.get(PODS).await.expect(200).json();
    assert_eq!(pods["items"].as_array().unwrap().len(), N_PODS);
    let mut created = standby.created_pods(&mut events).await;
    created.insert(first_pod);
    assert_eq!(created.len(), N_PODS);
}

#[tokio::test]
async fn a_leader_that_was_paused_beyond_its_lease_stops_before_it_acts() {
    let Some((first, standby)) = Standby::start().await else {
        return;
    };
    let path =
        "/api/v1/namespaces/kube-system/events?watch=true&fieldSelector=reason=LeaderElection";
    let mut elections = standby.client.watch(path).await;
    let mut events = standby.watch_pods().await;
    first.pause();
    standby.wait_until_it_leads().await;
    standby.create_replica_set("web").await;
    standby.wait_until_pods_are_ready("web").await;
    let leaders = holders(&standby.client).await;

    // It has not seen the ReplicaSet nor its pods when it goes on.
    first.resume();
    let mut leading = BTreeSet::from([LOOPS, SCHEDULER]);
    while !leading.is_empty() {
        let event = elections.next().await.expect("the watch goes on");
        let event = &event["object"];
        let message = event["message"].as_str().unwrap();
        if message.ends_with(" stopped leading") {
            leading.remove(event["involvedObject"]["name"].as_str().unwrap());
        }
    }
    // Its API server goes on, and the new leader works.
    first.admin().await.get(PODS).await.expect(200);
    standby.create_replica_set("next").await;
    standby.wait_until_pods_are_ready("next").await;
    assert_eq!(holders(&standby.client).await, leaders);
    let created = standby.created_pods(&mut events).await;
    assert_eq!(created.len(), 2 * N_PODS);
}

const LAST: &str =
    r#"{"metadata":{"name":"last"},"spec":{"containers":[{"name":"a","image":"a"}]}}"#;
