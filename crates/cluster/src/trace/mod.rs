//! `mizzen trace`: prints what controllers do to an object and its dependents, a line per step.
//!
//! `target` is the object to trace, `traced_objects` has it with its dependents, `step` derives steps from two states of an
//! object, `deletion` the actor and cause of a deletion, `warning` steps from Warning events. This file receives watch
//! events, sorts them by resource version, and prints lines.

mod deletion;
mod step;
mod target;
mod traced_objects;
mod warning;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use http::Method;
use kube::Client;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::informer::{Event, Handler, Informer, Registration};
use mizzen_sdk::resource::{
    self, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::write::{is_not_found, message};
use mizzen_sdk::{Key, Object, ResourceType};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep};

use crate::connect::{self, ConnectError, connect};
use crate::log::print_error;
use target::{TraceTarget, parse};
use traced_objects::{ReadyOutcome, TracedObjects};

/// How long to wait for late events before steps are printed. Each kind has a watch of its own.
const BATCH_DELAY: Duration = Duration::from_millis(30);
/// The queue of events. Beyond that they wait in the informers, which coalesce events of the same object.
const MAX_QUEUED: usize = 1024;

/// The kinds that can be traced, and their dependents.
static KINDS: [ResourceType; 8] = [
    CRON_JOBS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    resource::REPLICATION_CONTROLLERS,
    PODS,
];

/// Print what controllers do to an object and its dependents: one line per step, with the actor and the cause
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen trace deployment/web &\n  kubectl create deployment web --image=nginx --replicas=3"
)]
pub(crate) struct Trace {
    /// Trace this object; it need not exist yet
    #[arg(value_name = "KIND/NAME", value_parser = parse)]
    object: TraceTarget,
    /// Trace the object in this namespace
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// Connect to the API server with this kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Stop when all pods are ready or the object is complete; fail if it cannot become so
    #[arg(long)]
    until_ready: bool,
}

/// Why an object cannot be traced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// There is no client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A request failed.
    #[error("request failed: {}", message(.0))]
    Request(kube::Error),
    /// The kind is not supported.
    #[error("{kind:?} cannot be traced; supported kinds are {}", target::kinds())]
    Untraceable {
        /// The kind as it was written.
        kind: String,
    },
    /// With --until-ready: it cannot become ready.
    #[error("it will not be ready: {0}")]
    Never(String),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

impl Trace {
    /// Traces until it is stopped.
    pub(crate) fn run(self) -> Result<(), TraceError> {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(self.trace())
    }

    async fn trace(self) -> Result<(), TraceError> {
        let file = self
            .kubeconfig
            .clone()
            .unwrap_or_else(connect::default_file);
        let client = connect(&file, "mizzen-trace").await?;
        let api = DynamicClient::new(client.clone());
        let kind = self.object.find(&api).await?;
        let root = Key::new(self.namespace.as_str(), self.object.name.as_str());
        // Informers would retry forever, so access is checked first.
        let is_missing = match api.get(&KINDS[kind], &root).await {
            Err(error) if !is_not_found(&error) => return Err(TraceError::Request(error)),
            found => found.is_err(),
        };
        for resource in watched_resources(kind) {
            let path = format!("{}?limit=1", resource.path(&self.namespace));
            api.raw(Method::GET, &path, None)
                .await
                .map_err(TraceError::Request)?;
        }
        let (informers, mut events) = self.start_informers(&client, kind);
        let mut objects = TracedObjects::new(kind, root);
        let printed = async {
            // Existing objects are one batch, in order.
            let synced = async {
                for (_, handler) in &informers {
                    handler.wait_for_sync().await;
                }
            };
            let first = collect_until(&mut events, synced).await;
            if is_missing {
                print_error!(
                    "the object does not exist yet; waiting for it (press Ctrl-C to stop)"
                );
            }
            self.print_steps(first, events, &mut objects).await
        };
        let stop = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = printed => outcome,
            _ = stop => Ok(()),
        }
    }

    /// Starts the informers of the resources to watch.
    fn start_informers(
        &self,
        client: &Client,
        kind: usize,
    ) -> (Vec<RegisteredInformer>, Receiver<TraceEvent>) {
        let (sender, events) = channel(MAX_QUEUED);
        let one = |resource: &ResourceType| {
            let sender = sender.clone();
            let kind = KINDS.iter().position(|kind| kind == resource);
            let informer = Informer::new(ListWatch::at(
                client.clone(),
                resource.path(&self.namespace),
            ));
            let handler = informer.add_handler(Forwarder { kind, sender });
            informer.start();
            (informer, handler)
        };
        (watched_resources(kind).iter().map(one).collect(), events)
    }

    /// Prints the steps of events, batch by batch.
    async fn print_steps(
        &self,
        mut batch: Vec<TraceEvent>,
        mut events: Receiver<TraceEvent>,
        objects: &mut TracedObjects,
    ) -> Result<(), TraceError> {
        let began = Instant::now();
        loop {
            batch.sort_by_key(|event| event.object.version());
            for event in batch {
                let Ok(object) = event.object.read() else {
                    continue;
                };
                let steps = match event.kind {
                    Some(kind) => objects.on_change(kind, object, event.is_deleted, event.initial),
                    None => objects
                        .on_event(&object)
                        .into_iter()
                        .filter(|_| !event.is_deleted)
                        .collect(),
                };
                for step in steps {
                    if writeln!(io::stdout(), "{}", step.line(began.elapsed())).is_err() {
                        // Standard output is closed, as after `| head`.
                        return Ok(());
                    }
                }
            }
            match objects.outcome().filter(|_| self.until_ready) {
                Some(ReadyOutcome::Ready) => return Ok(()),
                Some(ReadyOutcome::Never(why)) => return Err(TraceError::Never(why)),
                None => {}
            }
            let Some(first) = events.recv().await else {
                return Ok(());
            };
            batch = vec![first];
            batch.append(&mut collect_until(&mut events, sleep(BATCH_DELAY)).await);
        }
    }
}

/// The resources to watch for an object of a kind: it, its dependents, and events.
fn watched_resources(kind: usize) -> Vec<ResourceType> {
    let dependents = match &*KINDS[kind].kind {
        "CronJob" => Some(JOBS),
        "Deployment" => Some(REPLICA_SETS),
        _ => None,
    };
    let pods = Some(PODS).filter(|pods| KINDS[kind] != *pods);
    [KINDS[kind].clone()]
        .into_iter()
        .chain(dependents)
        .chain(pods)
        .chain([EVENTS])
        .collect()
}

/// A watch event of one of the kinds, or an Event.
struct TraceEvent {
    /// None for an Event.
    kind: Option<usize>,
    object: Entry<Object>,
    is_deleted: bool,
    initial: bool,
}

/// Forwards watch events of a kind.
struct Forwarder {
    kind: Option<usize>,
    sender: Sender<TraceEvent>,
}

impl Handler<Object> for Forwarder {
    async fn handle(&mut self, event: Event<Object>) {
        let event = TraceEvent {
            kind: self.kind,
            object: event.object().clone(),
            is_deleted: matches!(event, Event::Deleted { .. }),
            initial: matches!(event, Event::Added { initial: true, .. }),
        };
        // The receiver is dropped when the command ends.
        let _ = self.sender.send(event).await;
    }
}

/// An informer and the registration of its handler.
type RegisteredInformer = (Informer<Object>, Registration<Object>);

/// All events until `end`.
async fn collect_until<T>(events: &mut Receiver<T>, end: impl Future<Output = ()>) -> Vec<T> {
    let (mut end, mut batch) = (pin!(end), Vec::new());
    loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => batch.push(event),
            () = &mut end => return batch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::step::TraceStep;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_may_be_larger_than_the_queue() {
        let (sender, mut events) = channel(4);
        let sent = tokio::spawn(async move {
            for number in 0..1000 {
                sender.send(number).await.unwrap();
            }
        });
        let batch = collect_until(&mut events, async { sent.await.unwrap() }).await;
        assert_eq!(batch, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_has_time_actor_object_and_cause() {
        let step = TraceStep {
            actor: "scheduler".into(),
            object: "pod/a".into(),
            what: "bound to n1".into(),
            cause: "it had no node".into(),
        };
        let expected = "   0.012s  scheduler                pod/a                              bound to n1  because it had no node";
        assert_eq!(step.line(Duration::from_millis(12)), expected);
    }
}
