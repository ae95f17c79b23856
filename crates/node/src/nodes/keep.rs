//! Keeping nodes alive: they are registered, and then each renews its lease every ten seconds.
//!
//! Leases are renewed a few at a time through the ten seconds, so that a thousand nodes do not all write at once, and
//! nobody is woken for each of them. The status is written when it is not what it should be, and every five minutes.
//!
//! Kubernetes: who deletes a node means it. It is not registered again until the agent is restarted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use kube::Error;
use mizzen_sdk::api::Patch;
use mizzen_sdk::cache::{Entry, Store};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{LEASES, NODES};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, value};
use tokio::time::sleep;

use super::object::{annotations, labels, needs_status, object, status};
use crate::agent::Timers;
use crate::moment::Moment;
use crate::settings::Settings;

/// Kubernetes: how long a lease lasts, and how often it is renewed (pkg/kubelet/kubelet.go).
const LEASE: Duration = Duration::from_secs(40);
const RENEW: Duration = Duration::from_secs(10);
/// Kubernetes: how often the status of a node is written if nothing changes.
const REPORT: Duration = Duration::from_secs(300);
/// In how many steps all nodes take their turn at a chore.
const STEPS: usize = 40;
/// Where leases of nodes are.
const NAMESPACE: &str = "kube-node-lease";
/// How many nodes are registered at a time.
const AT_A_TIME: usize = 32;
/// How long to wait until a node is registered again that could not be; twice as long after each further try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

/// One node, as far as its heart beats.
struct Beat {
    name: Str,
    uid: Str,
    /// The version of its lease; empty if it has none yet.
    lease: String,
    /// Whether somebody deleted it.
    is_gone: bool,
}

/// What is to be done for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Chore {
    Renew(usize),
    Report(usize),
}

/// Registers nodes and keeps them alive until the future is dropped. `queue` has the keys of nodes that changed, `nodes`
/// has the nodes.
pub(crate) async fn keep(settings: Arc<Settings>, nodes: Store<Object>, queue: Queue<Key>) {
    let mut beats = register(&settings).await;
    let places: HashMap<Str, usize> = beats
        .iter()
        .enumerate()
        .map(|(at, beat)| (beat.name.clone(), at))
        .collect();
    let mut timers = Timers::default();
    let began = settings.now();
    for at in 0..beats.len() {
        let turn = (at * STEPS / beats.len()) as u32;
        timers.add(began + RENEW * turn / STEPS as u32, Chore::Renew(at));
        timers.add(
            began + REPORT + REPORT * turn / STEPS as u32,
            Chore::Report(at),
        );
    }
    loop {
        let pause = timers
            .next()
            .map_or(RENEW, |at| at.saturating_since(settings.now()));
        tokio::select! {
            key = queue.get() => {
                let Some(key) = key else { return };
                if let Some(at) = places.get(key.name()) {
                    hear(&settings, &mut beats[*at], nodes.get(&key)).await;
                }
                queue.done(&key);
            }
            () = sleep(pause) => {
                let now = settings.now();
                let due: Vec<(Moment, Chore)> = std::iter::from_fn(|| timers.pop(now)).collect();
                work_off(&settings, &mut beats, &due).await;
                for (at, chore) in due {
                    timers.add(chore.again(at, now), chore);
                }
            }
        }
    }
}

impl Chore {
    /// The node whose lease is to be renewed.
    fn renews(self) -> Option<usize> {
        match self {
            Chore::Renew(at) => Some(at),
            Chore::Report(_) => None,
        }
    }

    /// When it is to be done again. What was missed is not made up for.
    fn again(self, at: Moment, now: Moment) -> Moment {
        let every = match self {
            Chore::Renew(_) => RENEW,
            Chore::Report(_) => REPORT,
        };
        (at + every).max(now)
    }
}

/// Does all chores that are due, side by side: first leases, then statuses.
async fn work_off(settings: &Settings, beats: &mut [Beat], due: &[(Moment, Chore)]) {
    let renews: HashSet<usize> = due.iter().filter_map(|(_, chore)| chore.renews()).collect();
    let living = beats
        .iter_mut()
        .enumerate()
        .filter(|(at, beat)| renews.contains(at) && !beat.is_gone);
    let renewals: FuturesUnordered<_> = living.map(|(_, beat)| settings.renew(beat)).collect();
    renewals.for_each(async |outcome| log(outcome)).await;
    for (_, chore) in due {
        if let Chore::Report(at) = chore
            && !beats[*at].is_gone
        {
            log(settings.report(&beats[*at].name, &Value::Null).await);
        }
    }
}

/// Registers every node, however long that takes.
async fn register(settings: &Arc<Settings>) -> Vec<Beat> {
    let tasks = settings.names().map(|name| {
        let settings = settings.clone();
        async move {
            let mut pause = FIRST_PAUSE;
            loop {
                match settings.register(&name).await {
                    Ok(beat) => return beat,
                    Err(error) => say(&error, "cannot register a node, will try again", &name),
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    });
    stream::iter(tasks).buffered(AT_A_TIME).collect().await
}

/// Writes the status of a node that others made say something else, and lets one rest that is gone.
async fn hear(settings: &Settings, beat: &mut Beat, node: Option<Entry<Object>>) {
    let node = node.filter(|node| beat.uid == node.uid());
    beat.is_gone = node.is_none();
    if let Some(Ok(node)) = node.map(|node| node.object())
        && needs_status(settings, &beat.name, &node)
    {
        log(settings.report(&beat.name, &node["status"]).await);
    }
}

fn log(outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        say(&error, "a node could not say that it lives", "");
    }
}

/// What the server refuses is said in its words; that it cannot be reached is the business of whoever made the client.
fn say(error: &Error, what: &str, node: &str) {
    match error {
        Error::Api(status) => tracing::warn!(node, "{what}: {}", status.message),
        error => tracing::debug!(node, %error, "{what}"),
    }
}

impl Settings {
    async fn register(&self, name: &str) -> Result<Beat, Error> {
        let (key, api) = (Key::cluster(name), self.api_of(name));
        let node = match api.create(&NODES, &object(self, name)).await {
            Err(error) if is_already_exists(&error) => {
                let known = api.get(&NODES, &key).await?;
                let change = value!({
                    "metadata": { "labels": (labels(name)), "annotations": (annotations(self, name)) },
                    "status": (status(self, name, &known["status"])),
                });
                api.patch(&NODES, &key, "status", Patch::Strategic, &change)
                    .await?
            }
            created => created?,
        };
        let mut beat = Beat {
            name: name.into(),
            uid: node.uid().into(),
            lease: String::new(),
            is_gone: false,
        };
        self.renew(&mut beat).await?;
        Ok(beat)
    }

    /// Renews the lease of a node, or makes it.
    async fn renew(&self, beat: &mut Beat) -> Result<(), Error> {
        let (key, api) = (
            Key::new(NAMESPACE, beat.name.as_str()),
            self.api_of(&beat.name),
        );
        if !beat.lease.is_empty() {
            match api.update(&LEASES, &self.lease(beat)).await {
                Ok(lease) => {
                    beat.lease = lease.version().into();
                    return Ok(());
                }
                // Somebody else wrote or deleted it: look again. Kubernetes: a lease that is gone is an internal error.
                Err(Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        beat.lease = match api.find(&LEASES, &key).await? {
            Some(lease) => lease.version().into(),
            None => String::new(),
        };
        let lease = self.lease(beat);
        let written = match beat.lease.is_empty() {
            true => api.create(&LEASES, &lease).await?,
            false => api.update(&LEASES, &lease).await?,
        };
        beat.lease = written.version().into();
        Ok(())
    }

    fn lease(&self, beat: &Beat) -> Object {
        let mut lease = value!({
            "metadata": {
                "name": (&beat.name),
                "namespace": NAMESPACE,
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": (&beat.name), "uid": (&beat.uid) },
                ],
            },
            "spec": {
                "holderIdentity": (&beat.name),
                "leaseDurationSeconds": (LEASE.as_secs() as i64),
                "renewTime": (self.now_micro()),
            },
        });
        if !beat.lease.is_empty() {
            lease
                .entry("metadata")
                .set("resourceVersion", beat.lease.as_str());
        }
        Object(lease)
    }

    /// The time of day with its microseconds.
    fn now_micro(&self) -> String {
        let now = self.now().wall();
        let seconds = mizzen_value::time::from_unix(now.as_secs() as i64);
        format!(
            "{}.{:06}Z",
            seconds.trim_end_matches('Z'),
            now.subsec_micros()
        )
    }

    /// Writes the status of a node; `known` is the status that it has, if somebody knows.
    async fn report(&self, name: &str, known: &Value) -> Result<(), Error> {
        let (key, api) = (Key::cluster(name), self.api_of(name));
        let read = match known.is_null() {
            true => api.find(&NODES, &key).await?,
            false => None,
        };
        let known = read.as_ref().map_or(known, |node| &node["status"]);
        if known.is_null() {
            return Ok(());
        }
        let change = value!({ "status": (status(self, name, known)) });
        api.patch(&NODES, &key, "status", Patch::Strategic, &change)
            .await
            .map(drop)
    }
}
