//! `mizzen trace`: what the loops do to an object and to all that belongs to it, live, a line per step.
//!
//! `wish` says which object is meant, `step` what happened, `leave` who deleted and why, `warning` what else is heard, `known`
//! who belongs to whom; here events come in, are put in the order in which the server wrote them, and lines go out.

mod known;
mod leave;
mod step;
mod warning;
mod wish;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use http::Method;
use kube::Client;
use mizzen_sdk::api::Api;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Handler, Informer, Registration};
use mizzen_sdk::resource::{
    self, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::write::{is_not_found, message};
use mizzen_sdk::{Key, Object, Resource};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep};

use crate::connect::{self, ConnectError, connect};
use crate::log::say;
use known::{Known, Outcome};
use step::Step;
use wish::{Wish, parse};

/// How long events may come late before the steps are told. Different kinds come by different watches.
const GATHER: Duration = Duration::from_millis(30);
/// How many events wait to be told. Beyond that they wait in the informers, which join those of the same object.
const MAX_WAITING: usize = 1024;

/// The kinds that can be traced, and what belongs to them.
static KINDS: [Resource; 8] = [
    CRON_JOBS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    resource::REPLICATION_CONTROLLERS,
    PODS,
];

/// Print what the loops do to an object and to all that belongs to it: one line per step, with who did it and why.
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen trace deployment/web &\n  kubectl create deployment web --image=nginx --replicas=3"
)]
pub(crate) struct Trace {
    /// What to follow; it need not be there yet
    #[arg(value_name = "KIND/NAME", value_parser = parse)]
    object: Wish,
    /// Its namespace
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// How to reach the server [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Stop when all of its pods are ready, or it is complete; fail if that cannot be any more
    #[arg(long)]
    until_ready: bool,
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refuses.
    #[error("cannot ask the server: {}", message(.0))]
    Refused(kube::Error),
    /// It is not known who belongs to an object of this kind.
    #[error("{kind:?} cannot be traced; what can: {}", wish::kinds())]
    Untraceable {
        /// The kind as it was written.
        kind: String,
    },
    /// Somebody waits until it is ready, in vain.
    #[error("it will not be ready: {0}")]
    Never(String),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

impl Trace {
    /// Traces until told to stop.
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
        let api = Api::new(client.clone());
        let kind = self.object.find(&api).await?;
        let root = Key::new(self.namespace.as_str(), self.object.name.as_str());
        // An informer would try for ever; somebody who waits for lines wants to know.
        let is_missing = match api.get(&KINDS[kind], &root).await {
            Err(error) if !is_not_found(&error) => return Err(TraceError::Refused(error)),
            found => found.is_err(),
        };
        for followed in followed(kind) {
            let path = format!("{}?limit=1", followed.path(&self.namespace));
            api.raw(Method::GET, &path, None)
                .await
                .map_err(TraceError::Refused)?;
        }
        let (informers, mut events) = follow(&client, &self.namespace, kind);
        let mut known = Known::new(kind, root);
        let told = async {
            // What was there before is told as a whole, in order.
            let synced = async {
                for (_, handler) in &informers {
                    handler.wait_for_sync().await;
                }
            };
            let first = gather(&mut events, synced).await;
            if is_missing {
                say!("it is not there yet; waiting for it (press Ctrl-C to stop)");
            }
            tell(first, events, &mut known, self.until_ready).await
        };
        let stop = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = told => outcome,
            _ = stop => Ok(()),
        }
    }
}

/// What is followed for an object of a kind: all that may belong to it, and what is told of that.
fn followed(kind: usize) -> Vec<Resource> {
    let between = match &*KINDS[kind].kind {
        "CronJob" => Some(JOBS),
        "Deployment" => Some(REPLICA_SETS),
        _ => None,
    };
    let pods = Some(PODS).filter(|pods| KINDS[kind] != *pods);
    [KINDS[kind].clone()]
        .into_iter()
        .chain(between)
        .chain(pods)
        .chain([EVENTS])
        .collect()
}

/// Something that happened to an object of one of the kinds, or something that was told.
struct Seen {
    /// None for an event.
    kind: Option<usize>,
    object: Entry<Object>,
    is_gone: bool,
    initial: bool,
}

/// Sends on what happens to objects of a kind.
struct Forward {
    kind: Option<usize>,
    sender: Sender<Seen>,
}

impl Handler<Object> for Forward {
    async fn handle(&mut self, event: Event<Object>) {
        let seen = Seen {
            kind: self.kind,
            object: event.object().clone(),
            is_gone: matches!(event, Event::Deleted { .. }),
            initial: matches!(event, Event::Added { initial: true, .. }),
        };
        // The receiver is gone when the command ends.
        let _ = self.sender.send(seen).await;
    }
}

/// An informer and the registration of its handler.
type Followed = (Informer<Object>, Registration<Object>);

fn follow(client: &Client, namespace: &str, kind: usize) -> (Vec<Followed>, Receiver<Seen>) {
    let (sender, events) = channel(MAX_WAITING);
    let one = |resource: &Resource| {
        let sender = sender.clone();
        let kind = KINDS.iter().position(|known| known == resource);
        let informer = Informer::new(ListWatch::at(client.clone(), resource.path(namespace)));
        let handler = informer.add_handler(Forward { kind, sender });
        informer.start();
        (informer, handler)
    };
    (followed(kind).iter().map(one).collect(), events)
}

/// Everything that arrives until `end`.
async fn gather<T>(events: &mut Receiver<T>, end: impl Future<Output = ()>) -> Vec<T> {
    let (mut end, mut batch) = (pin!(end), Vec::new());
    loop {
        tokio::select! {
            biased;
            Some(seen) = events.recv() => batch.push(seen),
            () = &mut end => return batch,
        }
    }
}

async fn tell(
    mut batch: Vec<Seen>,
    mut events: Receiver<Seen>,
    known: &mut Known,
    until_ready: bool,
) -> Result<(), TraceError> {
    let began = Instant::now();
    loop {
        batch.sort_by_key(|seen| seen.object.version());
        for seen in batch {
            let Ok(object) = seen.object.read() else {
                continue;
            };
            let steps = match seen.kind {
                Some(kind) => known.see(kind, object, seen.is_gone, seen.initial),
                None => known
                    .hear(&object)
                    .into_iter()
                    .filter(|_| !seen.is_gone)
                    .collect(),
            };
            for step in steps {
                if writeln!(io::stdout(), "{}", line(began.elapsed(), &step)).is_err() {
                    // Nobody reads any more, as after `| head`.
                    return Ok(());
                }
            }
        }
        match known.outcome().filter(|_| until_ready) {
            Some(Outcome::Ready) => return Ok(()),
            Some(Outcome::Never(why)) => return Err(TraceError::Never(why)),
            None => {}
        }
        let Some(first) = events.recv().await else {
            return Ok(());
        };
        batch = vec![first];
        batch.append(&mut gather(&mut events, sleep(GATHER)).await);
    }
}

fn line(at: Duration, step: &Step) -> String {
    let Step {
        actor,
        object,
        what,
        cause,
    } = step;
    let because = if cause.is_empty() {
        String::new()
    } else {
        format!("  because {cause}")
    };
    format!(
        "{:>8.3}s  {actor:<24} {object:<34} {what}{because}",
        at.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_there_is_gathered_whole_though_it_is_more_than_may_wait() {
        let (sender, mut events) = channel(4);
        let sent = tokio::spawn(async move {
            for number in 0..1000 {
                sender.send(number).await.unwrap();
            }
        });
        let batch = gather(&mut events, async { sent.await.unwrap() }).await;
        assert_eq!(batch, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_has_time_actor_object_and_cause() {
        let step = Step {
            actor: "scheduler".into(),
            object: "pod/a".into(),
            what: "bound to n1".into(),
            cause: "it had no node".into(),
        };
        let expected = "   0.012s  scheduler                pod/a                              bound to n1  because it had no node";
        assert_eq!(line(Duration::from_millis(12), &step), expected);
    }
}
