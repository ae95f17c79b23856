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
use std::time::Duration;

use clap::Args;
use http::Method;
use kube::Client;
use mizzen_sdk::api::Api;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{
    self, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, EVENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::write::{is_not_found, message};
use mizzen_sdk::{Key, Object, Resource};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::connect::{self, ConnectError, connect};
use crate::log::say;
use known::{Known, Outcome};
use step::Step;
use wish::{Wish, parse};

/// How long events may come late before the steps are told. Different kinds come by different watches.
const GATHER: Duration = Duration::from_millis(30);

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
        let (informers, events) = follow(&client, &self.namespace, kind);
        let known = Known::new(kind, root);
        let told = async {
            // What was there before is told as a whole, in order.
            for informer in &informers {
                informer.wait_for_sync().await;
            }
            if is_missing {
                say!("it is not there yet; waiting for it (press Ctrl-C to stop)");
            }
            tell(events, known, self.until_ready).await
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

fn follow(
    client: &Client,
    namespace: &str,
    kind: usize,
) -> (Vec<Informer<Object>>, UnboundedReceiver<Seen>) {
    let (sender, events) = unbounded_channel();
    let one = |resource: &Resource| {
        let sender = sender.clone();
        let kind = KINDS.iter().position(|known| known == resource);
        let informer = Informer::new(ListWatch::at(client.clone(), resource.path(namespace)));
        informer.add_handler(move |event: Event<Object>| {
            let is_gone = matches!(event, Event::Deleted { .. });
            let initial = matches!(event, Event::Added { initial: true, .. });
            let _ = sender.send(Seen {
                kind,
                object: event.object().clone(),
                is_gone,
                initial,
            });
        });
        informer.start();
        informer
    };
    (followed(kind).iter().map(one).collect(), events)
}

async fn tell(
    mut events: UnboundedReceiver<Seen>,
    mut known: Known,
    until_ready: bool,
) -> Result<(), TraceError> {
    let began = Instant::now();
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        sleep(GATHER).await;
        while let Ok(Some(seen)) = timeout(Duration::ZERO, events.recv()).await {
            batch.push(seen);
        }
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
    }
    Ok(())
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
