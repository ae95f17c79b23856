//! Durability after a kill, and errors of damaged data.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::process::{Home, Process};
use crate::random::Random;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const N_ROUNDS: usize = 8;
const N_WRITERS: usize = 6;
/// The number of objects of each writer.
const N_NAMES: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_after_a_kill() {
    check_kills(Home::on_disk()).await;
}

/// Kills servers of `home` during writes, one after the other.
pub(crate) async fn check_kills(home: Home) {
    let mut random = Random::from_env();
    let mut known = Known::default();
    for round in 0..N_ROUNDS {
        let process = home.start().await;
        known.check(&process, round).await;
        known.merge(write_until_killed(process, &mut random, round, &known).await);
    }
    known.check(&home.start().await, N_ROUNDS).await;
    assert!(
        known.objects.len() > N_WRITERS,
        "writers got somewhere: {} objects",
        known.objects.len()
    );
}

/// The acknowledged writes.
#[derive(Default, Clone)]
struct Known {
    /// The possible states by name. More than one if a response was lost.
    objects: BTreeMap<String, Vec<State>>,
    /// The highest acknowledged version.
    version: u64,
    n_writes: usize,
}

/// A possible state of an object.
#[derive(Debug, Clone, PartialEq)]
enum State {
    Absent,
    /// At this version, with this text; the version is unknown without a response.
    Present(Option<u64>, String),
}

impl Known {
    /// Compares with the objects of a server.
    async fn check(&mut self, process: &Process, round: usize) {
        let list = process
            .admin()
            .await
            .get(CONFIG_MAPS)
            .await
            .expect(200)
            .json();
        let found: BTreeMap<&str, &Value> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (name(item), item))
            .collect();
        for (name, states) in &mut self.objects {
            let actual = found.get(name.as_str()).map_or(State::Absent, |item| {
                State::Present(
                    Some(version(item)),
                    item["data"]["text"].as_str().unwrap().to_owned(),
                )
            });
            let fits = states.iter().any(|state| state.allows(&actual));
            assert!(
                fits,
                "round {round}, {name}: expected one of {states:?}, found {actual:?}"
            );
            *states = vec![actual];
        }
        for name in found.keys() {
            assert!(
                self.objects.contains_key(*name),
                "round {round}: nobody wrote {name}"
            );
        }
        assert!(
            version(&list) >= self.version,
            "round {round}: versions went back to {}",
            version(&list)
        );
        self.version = version(&list);
    }

    fn merge(&mut self, others: Vec<Known>) {
        for other in others {
            self.objects.extend(other.objects);
            self.version = self.version.max(other.version);
            self.n_writes += other.n_writes;
        }
    }
}

impl State {
    fn allows(&self, actual: &State) -> bool {
        match (self, actual) {
            (State::Present(None, text), State::Present(_, actual)) => text == actual,
            _ => self == actual,
        }
    }
}

/// Runs writers, and kills the server meanwhile.
async fn write_until_killed(
    process: Process,
    random: &mut Random,
    round: usize,
    known: &Known,
) -> Vec<Known> {
    let acknowledged = Arc::new(Semaphore::new(0));
    let mut writers = JoinSet::new();
    for number in 0..N_WRITERS {
        let writer = Writer {
            client: process.admin().await,
            prefix: format!("w{number}"),
            random: Random(random.next()),
            acknowledged: acknowledged.clone(),
            known: known.of(&format!("w{number}-")),
            round,
        };
        writers.spawn(writer.run());
    }
    let n_writes = 30 + random.below(250);
    acknowledged
        .acquire_many(u32::try_from(n_writes).unwrap())
        .await
        .unwrap()
        .forget();
    process.kill().await;
    writers.join_all().await
}

impl Known {
    /// The states of the objects of one writer.
    fn of(&self, prefix: &str) -> Known {
        let objects = self
            .objects
            .iter()
            .filter(|object| object.0.starts_with(prefix));
        let objects = objects
            .map(|(name, states)| (name.clone(), states.clone()))
            .collect();
        Known {
            objects,
            version: self.version,
            n_writes: 0,
        }
    }
}

/// Writes to its own objects, one request after the other, until the server is gone.
struct Writer {
    client: Client,
    prefix: String,
    random: Random,
    acknowledged: Arc<Semaphore>,
    known: Known,
    round: usize,
}

impl Writer {
    async fn run(mut self) -> Known {
        while self.write().await.is_some() {
            self.acknowledged.add_permits(1);
        }
        self.known
    }

    /// One write; none without a response.
    async fn write(&mut self) -> Option<()> {
        let name = format!("{}-{}", self.prefix, self.random.below(N_NAMES));
        let states = self
            .known
            .objects
            .entry(name.clone())
            .or_insert_with(|| vec![State::Absent]);
        let exists = matches!(states[0], State::Present(..));
        // A write without a response leaves both possibilities.
        if exists && self.random.below(5) == 0 {
            states.push(State::Absent);
            self.send("DELETE", &format!("/{name}"), String::new(), &name)
                .await?;
            self.known.objects.insert(name, vec![State::Absent]);
            return Some(());
        }
        let text = text(&mut self.random, self.round);
        states.push(State::Present(None, text.clone()));
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#);
        let stored = match exists {
            true => self.send("PUT", &format!("/{name}"), body, &name).await?,
            false => self.send("POST", "", body, &name).await?,
        };
        let version = version(&stored);
        assert!(
            version > self.known.version,
            "{name}: {version} after {}",
            self.known.version
        );
        self.known.version = version;
        self.known
            .objects
            .insert(name, vec![State::Present(Some(version), text)]);
        Some(())
    }

    async fn send(&mut self, method: &str, path: &str, body: String, name: &str) -> Option<Value> {
        let uri = self.client.uri(&format!("{CONFIG_MAPS}{path}"));
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        let answer = self.client.fetch(request).await.ok()?;
        assert!(
            (200..300).contains(&answer.status),
            "{method} {name}: {}",
            answer.text()
        );
        self.known.n_writes += 1;
        Some(answer.json())
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// A text; sometimes a long one, so that the log is compacted.
fn text(random: &mut Random, round: usize) -> String {
    let length = if random.below(4) == 0 { 60_000 } else { 200 };
    let unit = format!("{round}.{:016x} ", random.next());
    unit.repeat(length / unit.len())
}

#[tokio::test]
async fn a_second_server_in_the_same_data_directory_is_rejected() {
    let home = Home::on_disk();
    let process = home.start().await;
    check_refused(
        home.fail_to_start(0).await,
        &["/data runs already (pid ", &process.address],
    );
    process.admin().await.get("/readyz").await.expect(200);
    process.stop().await;
}

#[tokio::test]
async fn the_error_names_a_secure_port_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    check_refused(
        Home::in_memory().fail_to_start(port).await,
        &[&port.to_string(), "in use"],
    );
}

#[tokio::test]
async fn the_error_names_an_unusable_data_directory() {
    let home = Home::on_disk();
    fs::write(home.data_dir(), "a file").unwrap();
    check_refused(home.fail_to_start(0).await, &["data", "ot a directory"]);
}

#[tokio::test]
async fn a_log_with_a_changed_byte_is_rejected_and_not_changed() {
    check_damage(|bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    })
    .await;
}

#[tokio::test]
async fn a_truncated_log_is_rejected_and_not_changed() {
    check_damage(|bytes| bytes.truncate(bytes.len() / 2)).await;
}

#[tokio::test]
async fn a_log_full_of_zeros_is_rejected_and_not_changed() {
    check_damage(|bytes| bytes.fill(0)).await;
}

/// Damages the log of a stopped server, and expects an error and unchanged files.
async fn check_damage(damage: impl FnOnce(&mut Vec<u8>)) {
    let home = Home::on_disk();
    let process = home.start().await;
    let client = process.admin().await;
    for number in 0..20 {
        let body = format!(
            r#"{{"metadata":{{"name":"n{number}"}},"data":{{"a":"{}"}}}}"#,
            "x".repeat(500)
        );
        client.post(CONFIG_MAPS, body).await.expect(201);
    }
    process.stop().await;

    let log = log_file(&home);
    let mut bytes = fs::read(&log).unwrap();
    damage(&mut bytes);
    fs::write(&log, &bytes).unwrap();
    check_refused(
        home.fail_to_start(0).await,
        &[log.to_str().unwrap(), "damaged"],
    );
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[tokio::test]
async fn a_key_that_is_missing_beside_data_is_not_generated() {
    let home = Home::on_disk();
    home.start().await.stop().await;
    for (name, remedy) in [
        ("sa.key", "--service-account-signing-key-file"),
        ("ca.crt", "backup"),
        ("ca.key", "backup"),
    ] {
        let file = home.data_dir().join(name);
        let kept = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        let named = format!("{} is missing beside existing data", file.display());
        check_refused(home.fail_to_start(0).await, &[&named, remedy]);
        assert!(!file.exists());
        fs::write(&file, kept).unwrap();
    }
    home.start().await.stop().await;
}

fn log_file(home: &Home) -> PathBuf {
    let files = fs::read_dir(home.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max()
        .expect("a log")
}

/// Asserts a failed start with a one-line error.
#[track_caller]
fn check_refused(output: Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it started");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
    assert!(!text.contains("panicked"), "{text}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "it said that it is ready"
    );
}
