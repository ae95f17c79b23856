//! The flags of etcd, through the binary: TLS, resources in another etcd, events that expire, compaction.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mizzen_etcd::messages::{KeyValue, RangeRequest};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::client::Client;
use crate::etcd_server::{Cluster, Options, TlsFiles, installed};
use crate::process::{Home, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
/// Between two looks of a test that waits.
const PAUSE: Duration = Duration::from_millis(50);

/// All keys that begin with a prefix.
async fn keys(etcd: &Cluster, prefix: &str) -> Vec<KeyValue> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    let request = RangeRequest {
        key: prefix.to_owned().into(),
        range_end: end.into(),
        ..RangeRequest::default()
    };
    etcd.client().range(request).await.unwrap().kvs
}

fn names(keys: &[KeyValue]) -> Vec<&str> {
    let keys = keys.iter();
    keys.map(|kv| std::str::from_utf8(&kv.key).unwrap())
        .collect()
}

async fn create_config_map(client: &Client, name: &str) -> Value {
    let object = json!({ "metadata": { "name": name } });
    let created = client.post(CONFIG_MAPS, object.to_string()).await;
    created.expect(201).json()
}

async fn create_event(client: &Client, name: &str) {
    let event = json!({
        "metadata": { "name": name }, "reason": "Tested", "message": "it was", "type": "Normal",
        "involvedObject": { "kind": "ConfigMap", "namespace": "default", "name": "a" }
    });
    client.post(EVENTS, event.to_string()).await.expect(201);
}

#[tokio::test]
async fn a_server_reaches_an_etcd_that_needs_client_certificates() {
    for etcd in installed().into_iter().take(1) {
        let options = Options {
            tls: true,
            ..Options::default()
        };
        let etcd = etcd.start(options).await;
        let files = etcd.tls.clone().expect("with TLS");
        let (ca, cert, key) = (
            format!("--etcd-cafile={}", files.ca.display()),
            format!("--etcd-certfile={}", files.client_cert.display()),
            format!("--etcd-keyfile={}", files.client_key.display()),
        );
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        let server = home.start_with(&[&ca, &cert, &key]).await;
        create_config_map(&server.admin().await, "a").await;
        let stored = keys(&etcd, "/registry/configmaps/default/").await;
        assert_eq!(names(&stored), ["/registry/configmaps/default/a"]);
        server.stop().await;

        // Without a certificate, and with the authority of another etcd, the server says why it does not start.
        let other = tempfile::tempdir().unwrap();
        let other = format!(
            "--etcd-cafile={}",
            TlsFiles::create(other.path()).ca.display()
        );
        for (arguments, why) in [
            (vec![&*ca], "ertificate"),
            (
                vec![&*other, &*cert, &*key],
                "certificate signed by unknown authority",
            ),
        ] {
            let limits = [
                "--port=0",
                "--storage-initialization-timeout=1s",
                "--etcd-healthcheck-timeout=500ms",
            ];
            let refused = home.fail_with(&[&limits[..], &arguments].concat()).await;
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(said.contains("could not be read within 1 s"), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}

#[tokio::test]
async fn an_override_stores_a_resource_in_another_etcd_and_nowhere_else() {
    for program in installed().into_iter().take(1) {
        let (main, other) = tokio::join!(
            program.start(Options::default()),
            program.start(Options::default())
        );
        let endpoint = other.endpoint(0);
        let overrides = format!(
            "--etcd-servers-overrides=/events#{endpoint},coordination.k8s.io/leases#{endpoint}"
        );
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(main.endpoint(0))
            .with(overrides)
            .with("--etcd-healthcheck-timeout=1s")
            .with("--etcd-readycheck-timeout=1s");
        let server = home.start().await;
        let client = server.admin().await;
        create_config_map(&client, "a").await;
        let mut events = client.watch(&format!("{EVENTS}?watch=true")).await;
        create_event(&client, "a.1").await;
        assert_eq!(events.next_name().await, "ADDED a.1");

        let key = "/registry/events/default/a.1";
        assert_eq!(names(&keys(&other, "/registry/events/").await), [key]);
        assert!(keys(&main, "/registry/events/").await.is_empty());
        let config_map = "/registry/configmaps/default/a";
        assert_eq!(
            names(&keys(&main, "/registry/configmaps/default/").await),
            [config_map]
        );
        // Both APIs of events, and another server, read it from there.
        let path = "/apis/events.k8s.io/v1/namespaces/default/events/a.1";
        client.get(path).await.expect(200);
        server.kill().await;
        let server = home.start().await;
        let client = server.admin().await;
        client.get(&format!("{EVENTS}/a.1")).await.expect(200);
        let own = format!("{EVENTS}/a.1");
        client.call("DELETE", &own, "").await.expect(200);
        assert!(keys(&other, "/registry/events/").await.is_empty());
        check_health_of_override(&client, &main, &other).await;
    }
}

/// Each etcd has checks of its own, which wait for it at the same time.
async fn check_health_of_override(client: &Client, main: &Cluster, other: &Cluster) {
    let checks = async |path: &str, code| {
        let page = client.get(path).await.expect(code).text();
        let lines = page.lines().filter(|line| line.contains("]etcd"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    other.pause(0);
    let expected = ["[+]etcd ok", "[-]etcd-override-0 failed: reason withheld"];
    assert_eq!(checks("/livez", 500).await, expected);
    let alone = "/readyz?verbose&exclude=etcd-override-0&exclude=etcd-override-readiness-0";
    let expected = [
        "[+]etcd ok",
        "[+]etcd-readiness ok",
        "[+]etcd-override-0 excluded: ok",
        "[+]etcd-override-readiness-0 excluded: ok",
    ];
    assert_eq!(checks(alone, 200).await, expected);
    let groups = "/readyz?verbose&exclude=etcd&exclude=etcd-readiness";
    let expected = [
        "[+]etcd excluded: ok",
        "[+]etcd-readiness excluded: ok",
        "[+]etcd-override-0 excluded with etcd: ok",
        "[+]etcd-override-readiness-0 excluded with etcd-readiness: ok",
    ];
    assert_eq!(checks(groups, 200).await, expected);
    main.pause(0);
    let began = Instant::now();
    let failed = checks("/readyz", 500).await;
    assert!(failed.len() == 4 && failed.iter().all(|line| line.starts_with("[-]")));
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "one after another"
    );
    main.resume(0);
    other.resume(0);
}

/// What etcd says of a lease, by its gateway of JSON.
async fn lease(etcd: &Cluster, id: i64) -> Value {
    let address = etcd.endpoint(0).replace("http://", "");
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let body = json!({ "ID": id.to_string(), "keys": true }).to_string();
    let request = Request::post("/v3/lease/timetolive")
        .header("host", address)
        .body(Full::<hyper::body::Bytes>::from(body));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn an_event_has_a_lease_of_its_time_to_live_and_goes_with_it() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        let server = home.start_with(&["--event-ttl=1h"]).await;
        let client = server.admin().await;
        create_config_map(&client, "a").await;
        create_event(&client, "a.1").await;
        create_event(&client, "a.2").await;
        let stored = keys(&etcd, "/registry/events/default/").await;
        let [first, second] = &stored[..] else {
            panic!("{stored:?}");
        };
        assert_ne!(first.lease, 0);
        assert_eq!(first.lease, second.lease, "one lease for both");
        // Kubernetes: with the time within which a lease is shared on top, a minute.
        let told = lease(&etcd, first.lease).await;
        let granted: u64 = told["grantedTTL"].as_str().unwrap().parse().unwrap();
        assert!((3_650..=3_660).contains(&granted), "{told}");
        assert_eq!(told["keys"].as_array().unwrap().len(), 2, "{told}");
        let config_map = keys(&etcd, "/registry/configmaps/default/").await;
        assert_eq!(config_map[0].lease, 0);
        server.stop().await;

        let server = home.start_with(&["--event-ttl=1s"]).await;
        let client = server.admin().await;
        let list = client.get(EVENTS).await.expect(200).json();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{EVENTS}?watch=true&resourceVersion={version}");
        let mut events = client.watch(&path).await;
        create_event(&client, "short").await;
        assert_eq!(events.next_name().await, "ADDED short");
        assert_eq!(events.next_name().await, "DELETED short");
        client.get(&format!("{EVENTS}/short")).await.expect(404);
        client.get(&format!("{EVENTS}/a.1")).await.expect(200);
    }
}

/// How many config maps, or keys of them, lists have read from etcd.
async fn n_fetched(client: &Client) -> u64 {
    let metrics = client.get("/metrics").await.expect(200).text();
    let family = "apiserver_storage_list_fetched_objects_total";
    let series = format!("{family}{{group=\"\",resource=\"configmaps\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&*series));
    count.expect("it was listed").parse().unwrap()
}

/// Reads a list of three pages. The keys are listed for the first one at most.
async fn check_pages(client: &Client) {
    for name in ["c", "d", "e", "f"] {
        create_config_map(client, name).await;
    }
    // The watch of config maps does not tell the revision of the list.
    create_event(client, "a.1").await;
    let (mut token, mut names, mut fetched) = (String::new(), Vec::new(), None);
    loop {
        let page = format!("{CONFIG_MAPS}?limit=2&continue={token}");
        let page = client.get(&page).await.expect(200).json();
        for item in page["items"].as_array().unwrap() {
            names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
        }
        let now = n_fetched(client).await;
        assert_eq!(now, *fetched.get_or_insert(now), "after {names:?}");
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
}

#[tokio::test]
async fn the_past_is_compacted_at_the_interval() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = Home::on_disk()
            .with("--etcd-servers")
            .with(etcd.endpoint(0));
        // Without compaction the past can be read.
        let server = home.start_with(&["--etcd-compaction-interval=0s"]).await;
        let client = server.admin().await;
        let created = create_config_map(&client, "a").await;
        let old = created["metadata"]["resourceVersion"].as_str().unwrap();
        create_config_map(&client, "b").await;
        let exact = format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
        let list = client.get(&exact).await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        assert!(keys(&etcd, "compact_rev_key").await.is_empty());
        check_pages(&client).await;
        let page = format!("{CONFIG_MAPS}?limit=2");
        let page = client.get(&page).await.expect(200).json();
        let token = page["metadata"]["continue"].as_str().unwrap();
        server.stop().await;

        let server = home.start_with(&["--etcd-compaction-interval=1s"]).await;
        let client = server.admin().await;
        let at_old = RangeRequest {
            key: "/registry/configmaps/default/a".into(),
            revision: old.parse().unwrap(),
            ..RangeRequest::default()
        };
        let compacted = async {
            let direct = etcd.client();
            loop {
                match direct.range(at_old.clone()).await {
                    Err(error) if error.is_compacted() => return,
                    read => read.unwrap(),
                };
                sleep(PAUSE).await;
            }
        };
        timeout(STEP_TIMEOUT, compacted).await.expect("compacted");
        assert_eq!(keys(&etcd, "compact_rev_key").await.len(), 1);
        let expired = client.get(&exact).await.expect(410).json();
        assert_eq!(expired["reason"], "Expired");
        let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion={old}");
        let event = client.watch(&watch).await.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&"ERROR".into(), &410.into())
        );
        // A list goes on at the present, with the token of the error.
        let next = async |token: &str, status| {
            let page = format!("{CONFIG_MAPS}?limit=9&continue={token}");
            client.get(&page).await.expect(status).json()
        };
        let expired = next(token, 410).await;
        assert_eq!(expired["reason"], "Expired");
        let page = next(expired["metadata"]["continue"].as_str().unwrap(), 200).await;
        assert_eq!(page["items"].as_array().unwrap().len(), 4);
        // What is there now stays.
        let list = client.get(CONFIG_MAPS).await.expect(200).json();
        assert_eq!(list["items"].as_array().unwrap().len(), 6);
    }
}
