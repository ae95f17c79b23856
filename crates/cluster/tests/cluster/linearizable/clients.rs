//! Clients that create, replace, delete, read and list a few objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_linearizability::{Action, Freshness, List, Operation, Outcome, Read, Scope, Version};
use serde_json::Value;
use tokio::time::timeout;

use super::coverage;
use super::recorder::{self, LABELS, PATH, PREFIX, Recorder};
use super::servers::Servers;
use crate::client::{Answer, Client};
use crate::process::STEP_TIMEOUT;
use crate::random::Random;

/// How long a client waits for a response before it takes the result for unknown.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// How often a value is repeated in a large object: enough for the log to be compacted now and then.
const N_COPIES: usize = 6000;

/// Which requests clients send.
#[derive(Clone)]
pub(crate) struct Workload {
    /// The objects that they write.
    pub(crate) keys: Vec<String>,
    /// How many in ten requests are lists, or reads that may come from a cache.
    pub(crate) n_lists: u64,
    /// Whether every fourth write is of a large object.
    pub(crate) large: bool,
}

/// Sends one request after the other, each to any of the servers.
pub(crate) struct RecordedClient {
    number: usize,
    servers: Arc<Servers>,
    recorder: Arc<Recorder>,
    random: Random,
    workload: Workload,
    connections: BTreeMap<usize, Client>,
    /// The last revision of each key that this client saw.
    seen: BTreeMap<String, u64>,
    /// The last revision of a list.
    last_list: Option<u64>,
    n_written: usize,
}

impl RecordedClient {
    pub(crate) fn new(
        number: usize,
        servers: &Arc<Servers>,
        recorder: &Arc<Recorder>,
        random: Random,
        workload: Workload,
    ) -> RecordedClient {
        RecordedClient {
            number,
            servers: servers.clone(),
            recorder: recorder.clone(),
            random,
            workload,
            connections: BTreeMap::new(),
            seen: BTreeMap::new(),
            last_list: None,
            n_written: 0,
        }
    }

    pub(crate) async fn run(mut self) {
        while !self.recorder.is_over() {
            match self.random.below(10) {
                n if n >= self.workload.n_lists => {
                    let key = self.choose_key();
                    let action = self.choose_action(&key);
                    self.request(key, action).await;
                }
                _ => match self.random.below(6) {
                    0 => self.list().await,
                    1 => drop(self.list_past().await),
                    2 => self.list_not_older().await,
                    3 => self.list_scope().await,
                    4 => self.get_not_older().await,
                    _ => self.list_pages().await,
                },
            }
            self.recorder.count_attempt();
        }
    }

    /// Writes an object into each of `scopes`, at last one that all watches of everything see, and lists all, when nothing
    /// disturbs that any more. Returns the revisions that watches of each scope see.
    pub(crate) async fn write_last(mut self, scopes: &[Scope]) -> BTreeMap<Scope, u64> {
        let written = async {
            let mut ends = BTreeMap::new();
            for scope in scopes {
                let revision = match scope {
                    Scope::All => continue,
                    Scope::Key(key) => self.put(key, LABELS[0]).await,
                    Scope::Label(label) => self.put(&format!("{PREFIX}-last-{label}"), label).await,
                };
                ends.insert(scope.clone(), revision);
            }
            let last = self.put(&format!("{PREFIX}-last"), LABELS[0]).await;
            ends.insert(Scope::All, last);
            // It shows what all watches of everything must show at their end.
            self.last_list = Some(last);
            while !self.list_past().await {}
            self.list().await;
            ends
        };
        timeout(STEP_TIMEOUT, written).await.expect("last writes")
    }

    /// Creates or replaces an object. A server that was paused may need more than one attempt.
    async fn put(&mut self, key: &str, label: &str) -> u64 {
        loop {
            let value = self.next_value(label);
            let created = self.request(key.into(), Action::Create { value }).await;
            if let Some(Outcome::Stored { revision }) = created {
                return revision;
            }
            let (value, expected) = (self.next_value(label), None);
            let update = Action::Update { value, expected };
            if let Some(Outcome::Stored { revision }) = self.request(key.into(), update).await {
                return revision;
            }
        }
    }

    fn choose_key(&mut self) -> String {
        let n_keys = self.workload.keys.len() as u64;
        self.workload.keys[self.random.below(n_keys) as usize].clone()
    }

    fn choose_label(&mut self) -> &'static str {
        LABELS[self.random.below(LABELS.len() as u64) as usize]
    }

    /// A value that no other request writes.
    fn next_value(&mut self, label: &str) -> String {
        self.n_written += 1;
        format!("{label}/{}.{}", self.number, self.n_written)
    }

    fn choose_action(&mut self, key: &str) -> Action {
        let expected = self.seen.get(key).copied();
        let expected = expected.filter(|_| self.random.below(2) == 0);
        let label = self.choose_label();
        let value = self.next_value(label);
        match self.random.below(8) {
            0 | 1 => Action::Create { value },
            2..=4 => Action::Update { value, expected },
            5 => Action::Delete { expected },
            _ => Action::Get,
        }
    }

    /// Sends a request. `None` if no server got it.
    async fn request(&mut self, key: String, action: Action) -> Option<Outcome> {
        let (method, path) = match &action {
            Action::Create { .. } => ("POST", PATH.to_owned()),
            Action::Update { .. } => ("PUT", format!("{PATH}/{key}")),
            Action::Delete { .. } => ("DELETE", format!("{PATH}/{key}")),
            Action::Get => ("GET", format!("{PATH}/{key}")),
        };
        let body = match &action {
            Action::Delete { expected: Some(it) } => {
                format!(r#"{{"preconditions":{{"resourceVersion":"{it}"}}}}"#)
            }
            action => {
                let is_large = self.workload.large && self.random.below(4) == 0;
                recorder::body(&key, action, if is_large { N_COPIES } else { 1 })
            }
        };
        let server_idx = self.connect().await?;
        let called = self.recorder.now();
        let answer = self.send(server_idx, method, &path, body).await;
        let returned = self.recorder.now();
        let outcome = answer.map_or(Outcome::Unknown, |answer| outcome(&action, &answer));
        match &outcome {
            Outcome::Stored { revision } | Outcome::Found(Version { revision, .. }) => {
                self.seen.insert(key.clone(), *revision);
            }
            _ => {}
        }
        self.recorder.add_operation(Operation {
            client: self.number,
            key,
            called,
            returned,
            action,
            outcome: outcome.clone(),
        });
        Some(outcome)
    }

    pub(crate) async fn list(&mut self) {
        let list = self.fetch_list(Scope::All, Freshness::MostRecent).await;
        if let Some(list) = list {
            self.last_list = Some(list.revision);
            self.recorder.count("list");
            self.recorder.add_list(list);
        }
    }

    /// Lists the state at an earlier revision. Returns whether that has succeeded.
    async fn list_past(&mut self) -> bool {
        let Some(revision) = self.last_list else {
            return false;
        };
        let list = self.fetch_list(Scope::All, Freshness::Exact(revision));
        let Some(list) = list.await else {
            return false;
        };
        self.recorder.count("list at a revision");
        self.recorder.add_list(list);
        true
    }

    /// The last revision that this client saw.
    fn last_seen(&self) -> Option<u64> {
        let seen = self.seen.values().copied();
        seen.chain(self.last_list).max()
    }

    /// Reads an object in a state that is as late as all that this client saw.
    async fn get_not_older(&mut self) {
        let Some(not_older_than) = self.last_seen() else {
            return;
        };
        let key = self.choose_key();
        let Some(server_idx) = self.connect().await else {
            return;
        };
        let path = format!("{PATH}/{key}?resourceVersion={not_older_than}");
        let answer = self.send(server_idx, "GET", &path, String::new()).await;
        let Some(outcome) = answer.map(|answer| outcome(&Action::Get, &answer)) else {
            return;
        };
        let (what, found) = match outcome {
            Outcome::Found(version) => ("get not older than a revision", Some(version)),
            Outcome::NotFound => ("not found, not older than a revision", None),
            _ => return,
        };
        self.recorder.count(what);
        self.recorder.add_read(Read {
            key,
            returned: self.recorder.now(),
            not_older_than,
            found,
        });
    }

    /// Lists a state that is as late as all that this client saw.
    async fn list_not_older(&mut self) {
        let Some(revision) = self.last_seen() else {
            return;
        };
        let list = self.fetch_list(Scope::All, Freshness::NotOlderThan(revision));
        if let Some(list) = list.await {
            self.recorder.count("list not older than a revision");
            self.recorder.add_list(list);
        }
    }

    /// Lists what a selector selects.
    async fn list_scope(&mut self) {
        let scope = match self.random.below(2) {
            0 => Scope::Key(self.choose_key()),
            _ => Scope::Label(self.choose_label().into()),
        };
        let kind = coverage::of_list(&scope);
        if let Some(list) = self.fetch_list(scope, Freshness::MostRecent).await {
            self.recorder.count(kind);
            self.recorder.add_list(list);
        }
    }

    /// Lists in pages, which all show the revision of the first.
    async fn list_pages(&mut self) {
        let called = self.recorder.now();
        let mut items = BTreeMap::new();
        let mut query = "?limit=2".to_owned();
        loop {
            let Some(page) = self.fetch(&format!("{PATH}{query}")).await else {
                return;
            };
            items.extend(recorder::items(&page));
            match page["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => query = format!("?limit=2&continue={token}"),
                _ => {
                    self.recorder.count("list in pages");
                    // The present of this list was that of its first page, somewhere between call and return.
                    self.recorder.add_list(List {
                        scope: Scope::All,
                        called,
                        returned: self.recorder.now(),
                        freshness: Freshness::MostRecent,
                        revision: recorder::revision(&page),
                        items,
                    });
                    return;
                }
            }
        }
    }

    async fn fetch_list(&mut self, scope: Scope, freshness: Freshness) -> Option<List> {
        let parameters = match freshness {
            Freshness::MostRecent => String::new(),
            Freshness::Exact(revision) => {
                format!("resourceVersion={revision}&resourceVersionMatch=Exact")
            }
            Freshness::NotOlderThan(revision) => {
                format!("resourceVersion={revision}&resourceVersionMatch=NotOlderThan")
            }
        };
        let called = self.recorder.now();
        let list = self.fetch(&recorder::path(&scope, &parameters)).await?;
        Some(List {
            scope,
            called,
            returned: self.recorder.now(),
            freshness,
            revision: recorder::revision(&list),
            items: recorder::items(&list),
        })
    }

    /// The body of a successful read.
    async fn fetch(&mut self, path: &str) -> Option<Value> {
        let server_idx = self.connect().await?;
        let answer = self.send(server_idx, "GET", path, String::new()).await?;
        match answer.status {
            200 => Some(answer.json()),
            // The revision was compacted, or the server starts.
            410 | 429 | 500..=599 => None,
            status => panic!("GET {path}: {status} {}", answer.text()),
        }
    }

    /// A server with a connection; `None` if it does not respond.
    async fn connect(&mut self) -> Option<usize> {
        let server_idx = self.random.below(self.servers.len() as u64) as usize;
        if !self.connections.contains_key(&server_idx) {
            let connected = self.servers.connect(server_idx);
            // A server takes longer to start than to respond.
            let client = timeout(STEP_TIMEOUT, connected).await.ok()??;
            self.connections.insert(server_idx, client);
        }
        Some(server_idx)
    }

    /// The response; `None` if there is none in time.
    async fn send(
        &mut self,
        server_idx: usize,
        method: &str,
        path: &str,
        body: String,
    ) -> Option<Answer> {
        let client = &self.connections[&server_idx];
        let proxy = &self.recorder.proxy;
        let answer = proxy.send(server_idx, client, method, path, body);
        let answer = timeout(REQUEST_TIMEOUT, answer).await;
        match answer {
            Ok(Ok(answer)) => Some(answer),
            _ => {
                self.connections.remove(&server_idx);
                None
            }
        }
    }
}

fn outcome(action: &Action, answer: &Answer) -> Outcome {
    match (action, answer.status) {
        (Action::Create { .. }, 201) | (Action::Update { .. }, 200) => Outcome::Stored {
            revision: recorder::revision(&answer.json()),
        },
        (Action::Delete { .. }, 200) => Outcome::Deleted,
        (Action::Get, 200) => Outcome::Found(recorder::object(&answer.json()).1),
        (Action::Create { .. }, 409) => Outcome::AlreadyExists,
        (Action::Update { .. } | Action::Delete { .. }, 409) => Outcome::Conflict,
        (Action::Update { .. } | Action::Delete { .. } | Action::Get, 404) => Outcome::NotFound,
        (_, 429) => Outcome::Refused,
        (_, 500..=599) => Outcome::Unknown,
        (action, status) => panic!("{action:?}: {status} {}", answer.text()),
    }
}
