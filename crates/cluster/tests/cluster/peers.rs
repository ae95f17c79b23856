//! Servers of different versions on one etcd: each answers for what only a peer serves.
//!
//! A server without `batch/v1` stands for an older one. Both run on hosts of their own name, which is their identity.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::client::{Answer, Client};
use crate::etcd_server::{Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT, has_host_names};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Between two requests of a client that waits.
const PAUSE: Duration = Duration::from_millis(50);

/// A server with everything, and its peer.
struct Peers {
    home: Home,
    full: Process,
    lean: Process,
}

impl Peers {
    async fn start(etcd: &str) -> Peers {
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd)
            .with("--advertise-address=127.0.0.1");
        let full = home.start_on("full", &[]).await;
        let authorities = home.path().join("authorities.crt");
        std::fs::write(&authorities, &full.credentials.authority).unwrap();
        let authorities = format!("--peer-ca-file={}", authorities.display());
        let arguments = ["--runtime-config=batch/v1=false", &authorities];
        let lean = home.start_on("lean", &arguments).await;
        Peers { home, full, lean }
    }
}

/// Asks until the answer has a status and a text.
async fn wait_for(client: &Client, path: &str, status: u16, text: &str) -> Answer {
    let asked = async {
        loop {
            let answer = client.get(path).await;
            if answer.status == status && answer.text().contains(text) {
                return answer;
            }
            sleep(PAUSE).await;
        }
    };
    let waited = timeout(STEP_TIMEOUT, asked).await;
    waited.unwrap_or_else(|_| panic!("{path} is not {status} {text}"))
}

/// The names of the groups of a server.
async fn groups(client: &Client, accept: &str) -> Vec<String> {
    let document = client.get_with("/apis", ("accept", accept)).await;
    let document = document.expect(200).json();
    let groups = document["items"].as_array().unwrap().iter();
    let name = |group: &Value| group["metadata"]["name"].as_str().unwrap().to_owned();
    groups.map(name).collect()
}

#[tokio::test]
async fn a_peer_answers_for_what_a_server_does_not_serve() {
    let Some(etcd) = installed().into_iter().next() else {
        return;
    };
    if !has_host_names().await {
        return;
    }
    let etcd = etcd.start(Options::default()).await;
    let Peers { home, full, lean } = Peers::start(&etcd.endpoint(0)).await;
    let client = lean.admin().await;
    wait_for(&client, JOBS, 200, "JobList").await;

    // Reads, writes and watches, as the user of the request.
    let mut events = client.watch(&format!("{JOBS}?watch=true")).await;
    let template = json!({ "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a" }]
    } });
    let job = json!({ "metadata": { "name": "a" }, "spec": { "template": template } });
    client.post(JOBS, job.to_string()).await.expect(201);
    assert_eq!(events.next_name().await, "ADDED a");
    let own = format!("{JOBS}/a");
    full.admin().await.get(&own).await.expect(200);
    let anonymous = lean.anonymous().await;
    anonymous.get(&own).await.expect(403);

    // Discovery shows both servers, or the one that is asked.
    let nopeer = format!("{DISCOVERY};profile=nopeer");
    let (all, own_groups) = (
        groups(&client, DISCOVERY).await,
        groups(&client, &nopeer).await,
    );
    assert_eq!(all, groups(&full.admin().await, DISCOVERY).await);
    let expected: Vec<&String> = all.iter().filter(|group| *group != "batch").collect();
    assert_eq!(own_groups.iter().collect::<Vec<_>>(), expected);
    let legacy = client.get("/apis").await.expect(200).text();
    assert!(!legacy.contains("batch"), "{legacy}");

    // A request that a peer has proxied is not proxied again.
    let proxied = ("x-kubernetes-peer-proxied", "true");
    client.get_with(&own, proxied).await.expect(404);
    // What no server serves is not found.
    client.get("/apis/none/v1/things").await.expect(404);

    let metrics = client.get("/metrics").await.expect(200).text();
    let counted = |line: &str| assert!(metrics.contains(line), "{line} is not in {metrics}");
    counted(
        r#"apiserver_rerouted_request_total{code="201",group="batch",resource="jobs",version="v1"} 1"#,
    );
    counted("aggregator_discovery_nopeer_requests_total 1");
    counted("aggregator_discovery_peer_aggregated_cache_misses_total 1");

    // A dead peer: while its lease lasts the connection is refused; without a lease it has no address.
    full.kill().await;
    let dead = wait_for(&client, &own, 503, "error trying to reach service: ").await;
    assert!(
        dead.text().contains("connection refused"),
        "{}",
        dead.text()
    );
    let full = home.start_on("full", &[]).await;
    wait_for(&client, &own, 200, "Job").await;
    full.stop().await;
    let gone = wait_for(&client, &own, 503, "Status").await.json();
    assert_eq!(
        (gone["reason"].as_str(), gone["message"].as_str()),
        (
            Some("ServiceUnavailable"),
            Some("Error getting ip and port info of the remote server while proxying")
        )
    );
}

#[tokio::test]
async fn peers_need_etcd_and_valid_authorities() {
    let home = Home::in_memory();
    let file = home.path().join("authorities.crt");
    let argument = format!("--peer-ca-file={}", file.display());
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, argument, expected) in [
        ("nonsense", &*argument, "it has no certificate"),
        (
            CERTIFICATE,
            &*argument,
            "there are no peers without --etcd-servers",
        ),
        ("", "--peer-advertise-ip=x", "invalid IP address syntax"),
        ("", "--peer-advertise-port=0", "0 is not in 1..=65535"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = home.fail_with(&[argument]).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{text}");
        assert!(!output.status.success());
    }
}
