//! A rolling restart of servers on one etcd: no request of a client that retries as client-go does fails, and watches go on
//! without a gap.
//!
//! client-go sends a request again only if the server cannot have handled it: the connection was refused, or the server
//! sent GOAWAY before it took the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Answer, Client, Credentials};
use crate::etcd_server::{Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const N_WRITERS: usize = 3;
/// Between two requests of a writer.
const PAUSE: Duration = Duration::from_millis(10);
/// Before a request is sent again.
const BACKOFF: Duration = Duration::from_millis(20);

/// Servers that are reached at the same addresses, whichever process serves there.
#[derive(Clone)]
struct Servers {
    addresses: Arc<Vec<String>>,
    credentials: Credentials,
}

impl Servers {
    /// A connection to the server `n`, or to the next one that accepts it.
    async fn connect(&self, n: &mut usize) -> Client {
        loop {
            let address = &self.addresses[*n % self.addresses.len()];
            if let Ok(client) = Client::try_connect(address, &self.credentials).await {
                return client;
            }
            *n += 1;
            sleep(BACKOFF).await;
        }
    }
}

/// A client with one connection, which is made again when its server stops.
struct RetryingClient {
    servers: Servers,
    n: usize,
    client: Client,
    n_retried: Arc<AtomicUsize>,
}

impl RetryingClient {
    async fn new(servers: &Servers, mut n: usize, n_retried: &Arc<AtomicUsize>) -> RetryingClient {
        RetryingClient {
            client: servers.connect(&mut n).await,
            servers: servers.clone(),
            n,
            n_retried: n_retried.clone(),
        }
    }

    async fn call(&mut self, method: &str, path: &str, body: &str) -> Answer {
        loop {
            match self.client.try_call(method, path, body.to_owned()).await {
                Ok(answer) => return answer,
                Err(error) => assert!(was_not_handled(&error), "{method} {path}: {error:?}"),
            }
            self.n_retried.fetch_add(1, Ordering::Relaxed);
            self.n += 1;
            self.client = self.servers.connect(&mut self.n).await;
        }
    }
}

/// Whether the server cannot have handled a request: it was never sent, or came after GOAWAY.
fn was_not_handled(error: &hyper::Error) -> bool {
    let shown = format!("{error:?}");
    error.is_canceled()
        || error.is_closed()
        || shown.contains("NO_ERROR") && shown.contains("GoAway")
}

/// Writes until `is_over`, and returns how many objects it made.
async fn write(mut client: RetryingClient, writer: usize, is_over: Arc<AtomicBool>) -> usize {
    let mut n = 0;
    while !is_over.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{n:05}");
        let object = json!({ "metadata": { "name": name } }).to_string();
        client.call("POST", CONFIG_MAPS, &object).await.expect(201);
        let own = format!("{CONFIG_MAPS}/{name}");
        client.call("GET", &own, "").await.expect(200);
        n += 1;
        sleep(PAUSE).await;
    }
    n
}

/// Watches from `version` until it has seen `expected` names or more, and asserts that none comes twice.
async fn watch(servers: Servers, mut version: String, expected: Arc<AtomicUsize>) -> Vec<String> {
    let (mut seen, mut n) = (Vec::new(), 0);
    while seen.len() < expected.load(Ordering::Relaxed) {
        let client = servers.connect(&mut n).await;
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=2");
        let Ok((status, mut events)) = client.try_watch(&path).await else {
            continue;
        };
        // A server that stops answers no watch.
        if status != 200 {
            assert_eq!(status, 503);
            continue;
        }
        while seen.len() < expected.load(Ordering::Relaxed)
            && let Ok(Some(event)) = events.try_next().await
        {
            assert_eq!(event["type"], "ADDED", "{event}");
            let metadata = &event["object"]["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap().to_owned();
            version = text("resourceVersion");
            seen.push(text("name"));
        }
        n += 1;
    }
    seen
}

#[tokio::test]
async fn a_rolling_restart_fails_no_request_and_breaks_no_watch() {
    let Some(etcd) = installed().into_iter().next() else {
        return;
    };
    let etcd = etcd.start(Options::default()).await;
    let home = Home::on_disk()
        .with("--etcd-servers")
        .with(etcd.endpoint(0));
    let mut processes: Vec<Process> = vec![home.start().await, home.start().await];
    let servers = Servers {
        addresses: Arc::new(processes.iter().map(|one| one.address.clone()).collect()),
        credentials: processes[0].credentials.clone(),
    };
    let admin = processes[0].admin().await;
    let empty = admin.get(CONFIG_MAPS).await.expect(200).json();
    let version = empty["metadata"]["resourceVersion"].as_str().unwrap();
    let (is_over, n_retried) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let expected = Arc::new(AtomicUsize::new(usize::MAX));
    let watcher = tokio::spawn(watch(servers.clone(), version.to_owned(), expected.clone()));
    let mut writers = JoinSet::new();
    for writer in 0..N_WRITERS {
        let client = RetryingClient::new(&servers, writer, &n_retried).await;
        writers.spawn(write(client, writer, is_over.clone()));
    }

    for process in &mut processes {
        let port = process.address.rsplit(':').next().unwrap().to_owned();
        process.terminate();
        assert_eq!(process.ended().await.code(), Some(0));
        *process = home.start_at(&port).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let written: usize = timeout(STEP_TIMEOUT, writers.join_all())
        .await
        .expect("writers end")
        .into_iter()
        .sum();
    assert!(written > N_WRITERS, "nothing was written under the restart");
    assert!(
        n_retried.load(Ordering::Relaxed) > 0,
        "no client had to retry"
    );
    expected.store(written, Ordering::Relaxed);
    let seen = timeout(STEP_TIMEOUT, watcher).await.expect("all events");
    let mut seen = seen.unwrap();
    let list = processes[1].admin().await.get(CONFIG_MAPS).await;
    let items = list.expect(200).json();
    let items = items["items"].as_array().unwrap().iter();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    let mut stored: Vec<String> = items.map(name).collect();
    stored.retain(|name| name.starts_with('w'));
    assert_eq!(stored.len(), written);
    seen.sort();
    stored.sort();
    assert_eq!(seen, stored);
}
