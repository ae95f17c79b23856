//! Watchers that list, watch, resume where a connection broke, and list again if they must.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_linearizability::{EventKind, Freshness, List, Scope, Watch, WatchEvent};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::clients::REQUEST_TIMEOUT;
use super::coverage;
use super::recorder::{self, PREFIX, Recorder};
use super::servers::Servers;
use crate::client::Client;
use crate::process::STEP_TIMEOUT;
use crate::random::Random;

/// Starts a watcher of each scope.
pub(crate) fn spawn(
    scopes: &[Scope],
    servers: &Arc<Servers>,
    recorder: &Arc<Recorder>,
    random: &mut Random,
) -> JoinSet<()> {
    let watchers = scopes.iter().enumerate().map(|(number, scope)| Watcher {
        number,
        scope: scope.clone(),
        servers: servers.clone(),
        recorder: recorder.clone(),
        random: Random(random.next()),
    });
    watchers.map(Watcher::run).collect()
}

/// Waits until the watchers of each scope have seen the revision in `ends`.
pub(crate) async fn finish(
    mut watchers: JoinSet<()>,
    recorder: &Recorder,
    ends: BTreeMap<Scope, u64>,
) {
    recorder.end_at(ends);
    let ended = async { while watchers.join_next().await.transpose().unwrap().is_some() {} };
    let ended = timeout(STEP_TIMEOUT, ended).await;
    ended.expect("watches see the last writes");
}

struct Watcher {
    number: usize,
    scope: Scope,
    servers: Arc<Servers>,
    recorder: Arc<Recorder>,
    random: Random,
}

/// Why a connection of a watch is over.
enum WatchEnd {
    /// The connection broke.
    Broken,
    /// The revision is too old: the watcher lists again.
    Expired,
    /// All is seen.
    Complete,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            let mut watch = self.list().await;
            let end = loop {
                match self.follow(&mut watch).await {
                    WatchEnd::Broken => {}
                    end => break end,
                }
            };
            self.recorder.add_watch(watch);
            if let WatchEnd::Complete = end {
                return;
            }
        }
    }

    /// A server that responds, and a connection to it.
    async fn connect(&mut self) -> (usize, Client) {
        loop {
            let server_idx = self.random.below(self.servers.len() as u64) as usize;
            let connected = self.servers.connect(server_idx);
            let connected = timeout(STEP_TIMEOUT, connected).await;
            if let Some(client) = connected.expect("a server that responds") {
                return (server_idx, client);
            }
        }
    }

    /// The list from which a watch begins.
    async fn list(&mut self) -> Watch {
        loop {
            let (_, client) = self.connect().await;
            let path = recorder::path(&self.scope, "");
            let called = self.recorder.now();
            let answer = client.get_within(REQUEST_TIMEOUT, &path).await;
            let Some(answer) = answer.filter(|answer| answer.status == 200) else {
                continue;
            };
            let list = answer.json();
            let (start, items) = (recorder::revision(&list), recorder::items(&list));
            self.recorder.count(coverage::of_list(&self.scope));
            self.recorder.add_list(List {
                scope: self.scope.clone(),
                called,
                returned: self.recorder.now(),
                freshness: Freshness::MostRecent,
                revision: start,
                items: items.clone(),
            });
            return Watch {
                scope: self.scope.clone(),
                watcher: self.number,
                start,
                items,
                events: Vec::new(),
                end: start,
            };
        }
    }

    /// Watches on a new connection, from where the last one ended.
    async fn follow(&mut self, watch: &mut Watch) -> WatchEnd {
        let (server_idx, client) = self.connect().await;
        let version = watch.end;
        let parameters = format!("watch=1&allowWatchBookmarks=true&resourceVersion={version}");
        let path = recorder::path(&self.scope, &parameters);
        let opened = timeout(REQUEST_TIMEOUT, client.try_watch(&path)).await;
        let mut events = match opened {
            Ok(Ok((200, events))) => events,
            Ok(Ok((410, _))) => return WatchEnd::Expired,
            _ => return WatchEnd::Broken,
        };
        loop {
            let next = tokio::select! {
                () = self.recorder.ended(&self.scope, watch.end) => return WatchEnd::Complete,
                next = events.try_next() => next,
            };
            let Ok(Some(event)) = next else {
                return WatchEnd::Broken;
            };
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410, "{event}");
                return WatchEnd::Expired;
            }
            self.take(watch, server_idx, &event);
        }
    }

    fn take(&self, watch: &mut Watch, server_idx: usize, event: &Value) {
        let kind = match event["type"].as_str() {
            Some("ADDED") => EventKind::Added,
            Some("MODIFIED") => EventKind::Modified,
            Some("DELETED") => EventKind::Deleted,
            Some("BOOKMARK") => {
                watch.end = recorder::revision(&event["object"]);
                return;
            }
            _ => panic!("{event}"),
        };
        let (key, version) = recorder::object(&event["object"]);
        watch.end = version.revision;
        if key.starts_with(PREFIX) && self.recorder.proxy.delivers(server_idx) {
            watch.events.push(WatchEvent { kind, key, version });
        }
    }
}
