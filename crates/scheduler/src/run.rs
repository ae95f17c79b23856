//! A scheduler at work: set up, caches filled, until stopped.

use std::sync::Arc;

use kube::Client;
use mizzen_sdk::api::Api;
use mizzen_sdk::informer::Factory;
use mizzen_sdk::metrics::{Collector, Families};
use mizzen_sdk::seam::{self, Chance, Clock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::configuration::Configuration;
use crate::extender::Extender;
use crate::inbox::{self, Letter};
use crate::meter::Meter;
use crate::scheduler::Scheduler;

/// How a scheduler is set up.
#[derive(Clone)]
pub struct Options {
    /// Reads and writes under the scheduler's name.
    pub api: Api,
    /// What follows objects.
    pub informers: Factory,
    /// The time of day.
    pub clock: Clock,
    /// Where chance comes from.
    pub chance: Chance,
    /// The machine's name, which tells this scheduler from others of its name.
    pub host: String,
    /// Profiles, plugins, extenders.
    pub configuration: Arc<Configuration>,
}

impl Options {
    /// On the wall clock, with caches of its own.
    pub fn new(client: Client) -> Options {
        Options {
            api: Api::new(client.clone()),
            informers: Factory::new(client),
            clock: seam::wall_clock(),
            chance: seam::chance(),
            host: host(),
            configuration: Arc::default(),
        }
    }
}

fn host() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default()
}

/// Why a scheduler does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// A scheduler at work. It stops when this is dropped, and what it follows with it.
pub struct Handle {
    informers: Factory,
    synced: watch::Receiver<bool>,
    meter: Meter,
    _tasks: JoinSet<()>,
}

/// Starts a scheduler. To be called within a runtime.
pub fn start(options: Options) -> Result<Handle, StartError> {
    let extenders = options
        .configuration
        .extenders
        .iter()
        .cloned()
        .map(|extender| Extender::new(extender, &options.clock));
    let extenders: Vec<Extender> = extenders.collect::<Result<_, _>>().map_err(StartError)?;
    let (sender, inbox) = mpsc::channel(inbox::ROOM);
    let registrations = inbox::follow(&options.informers, &sender);
    options.informers.start();
    let (done, synced) = watch::channel(false);
    let meter = Meter::default();
    let scheduler = Scheduler::new(&options, extenders, sender.clone(), meter.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(scheduler.run(inbox));
    tasks.spawn(async move {
        for registration in &registrations {
            registration.wait_for_sync().await;
        }
        let _ = sender.send(Letter::Synced).await;
        done.send_replace(true);
        // Handlers listen for as long as somebody holds their registrations.
        std::future::pending::<()>().await;
    });
    Ok(Handle {
        informers: options.informers,
        synced,
        meter,
        _tasks: tasks,
    })
}

impl Handle {
    /// Waits until all caches are filled.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }
}

/// Those of the scheduler and of its informers.
impl Collector for Handle {
    fn collect(&self, families: &mut Families) {
        self.meter.collect(families);
        self.informers.collect(families);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.informers.stop();
    }
}
