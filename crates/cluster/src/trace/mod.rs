//! `mizzen trace`: what the loops do to an object and to all that belongs to it, live, a line per step.
//!
//! `step` says what happened, `known` who belongs to whom; here events come in, are put in the order in which the server
//! wrote them, and lines go out.

mod known;
mod step;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mizzen_sdk::api::Api;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Factory};
use mizzen_sdk::resource::{
    self, CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS,
};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, Resource};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::connect::{self, ConnectError, connect};
use known::Known;
use step::Step;

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
pub struct Trace {
    /// What to follow; it need not be there yet
    #[arg(value_name = "KIND/NAME", value_parser = parse)]
    object: (usize, String),
    /// Its namespace
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// How to reach the server [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Stop when all of its pods are ready, or it is complete
    #[arg(long)]
    until_ready: bool,
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refuses.
    #[error("cannot ask the server: {0}")]
    Refused(kube::Error),
    /// The process could not be set up.
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// `deployment/web`: which of the kinds, and the name. Plurals will do.
fn parse(text: &str) -> Result<(usize, String), String> {
    let (kind, name) = text.split_once('/').ok_or("expected KIND/NAME, such as deployment/web")?;
    let kind = kind.to_lowercase();
    let found = KINDS.iter().position(|known| kind == *known.plural || kind == known.kind.to_lowercase());
    let names = || KINDS.iter().map(|known| known.kind.to_lowercase()).collect::<Vec<_>>().join(", ");
    found
        .map(|found| (found, name.into()))
        .ok_or_else(|| format!("{kind:?} cannot be traced; what can: {}", names()))
}

impl Trace {
    /// Traces until told to stop.
    pub fn run(self) -> Result<(), TraceError> {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(self.trace())
    }

    async fn trace(self) -> Result<(), TraceError> {
        let file = self.kubeconfig.clone().unwrap_or_else(connect::default_file);
        let client = connect(&file, "mizzen-trace").await?;
        let root = Key::new(self.namespace.as_str(), self.object.1.as_str());
        // An informer would try for ever; somebody who waits for lines wants to know.
        let is_missing = match Api::new(client.clone()).get(&KINDS[self.object.0], &root).await {
            Err(error) if !is_not_found(&error) => return Err(TraceError::Refused(error)),
            found => found.is_err(),
        };
        let factory = Factory::new(client);
        let events = follow(&factory, &self.namespace);
        let known = Known::new(self.object.0, root);
        let told = async {
            if is_missing {
                factory.wait_for_sync().await;
                eprintln!("it is not there yet; waiting for it (press Ctrl-C to stop)");
            }
            tell(events, known, self.until_ready).await;
        };
        let stop = tokio::signal::ctrl_c();
        tokio::select! {
            () = told => {}
            _ = stop => {}
        }
        Ok(())
    }
}

/// Something that happened to an object of one of the kinds.
struct Seen {
    kind: usize,
    object: Entry<Object>,
    is_gone: bool,
    initial: bool,
}

fn follow(factory: &Factory, namespace: &str) -> UnboundedReceiver<Seen> {
    let (sender, events) = unbounded_channel();
    for (kind, resource) in KINDS.iter().enumerate() {
        let (sender, namespace) = (sender.clone(), namespace.to_string());
        factory.objects(resource).add_handler(move |event: Event<Object>| {
            let is_gone = matches!(event, Event::Deleted { .. });
            let initial = matches!(event, Event::Added { initial: true, .. });
            if event.key().namespace() == namespace {
                let _ = sender.send(Seen { kind, object: event.object().clone(), is_gone, initial });
            }
        });
    }
    factory.start();
    events
}

async fn tell(mut events: UnboundedReceiver<Seen>, mut known: Known, until_ready: bool) {
    let began = Instant::now();
    while let Some(first) = events.recv().await {
        let mut batch = vec![first];
        sleep(GATHER).await;
        while let Ok(Some(seen)) = timeout(Duration::ZERO, events.recv()).await {
            batch.push(seen);
        }
        batch.sort_by_key(|seen| seen.object.version());
        for seen in batch {
            let Ok(object) = seen.object.read() else { continue };
            for step in known.see(seen.kind, object, seen.is_gone, seen.initial) {
                println!("{}", line(began.elapsed(), &step));
            }
        }
        if until_ready && known.is_ready() {
            return;
        }
    }
}

fn line(at: Duration, step: &Step) -> String {
    let Step { actor, object, what, cause } = step;
    let because = if cause.is_empty() { String::new() } else { format!("  because {cause}") };
    format!("{:>8.3}s  {actor:<24} {object:<34} {what}{because}", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_its_kind_in_one_or_many() {
        assert_eq!(parse("deployment/web"), Ok((1, "web".into())));
        assert_eq!(parse("Pods/a"), Ok((7, "a".into())));
    }

    #[test]
    fn what_cannot_be_traced_is_said_with_what_can() {
        assert!(parse("web").unwrap_err().contains("KIND/NAME"));
        assert!(parse("secret/a").unwrap_err().contains("replicaset, statefulset"));
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
