//! Starting and stopping a scheduler.

use std::sync::Arc;

use kube::Client;
use mizzen_sdk::clock::{self, Clock, Rng};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::informer::Factory;
use mizzen_sdk::metrics::{Collector, Families};
use mizzen_sdk::resource::PODS;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::configuration::Configuration;
use crate::events::{self, SchedulerMessage};
use crate::extender::Extender;
use crate::metrics::SchedulerMetrics;
use crate::resource_metrics::PodResourceMetrics;
use crate::scheduler::Scheduler;

/// The dependencies of a scheduler.
#[derive(Clone)]
pub struct Options {
    /// The client.
    pub api: DynamicClient,
    /// The informers.
    pub informers: Factory,
    /// The wall clock.
    pub clock: Clock,
    /// The random source.
    pub rng: Rng,
    /// The host name, part of the Events' `reportingInstance`.
    pub host: String,
    /// Profiles, plugins, extenders.
    pub configuration: Arc<Configuration>,
}

impl Options {
    /// With the system clock and informers of its own.
    pub fn new(client: Client) -> Options {
        Options {
            api: DynamicClient::new(client.clone()),
            informers: Factory::new(client),
            clock: clock::wall_clock(),
            rng: clock::rng(),
            host: nix::unistd::gethostname()
                .ok()
                .and_then(|name| name.into_string().ok())
                .unwrap_or_default(),
            configuration: Arc::default(),
        }
    }
}

/// Why a scheduler does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// A running scheduler. Dropping it stops the scheduler and its informers.
pub struct Handle {
    informers: Factory,
    synced: watch::Receiver<bool>,
    metrics: SchedulerMetrics,
    configuration: Arc<Configuration>,
    _tasks: JoinSet<()>,
}

/// Starts a scheduler. Must be called within a Tokio runtime.
pub fn start(options: Options) -> Result<Handle, StartError> {
    let extenders = options
        .configuration
        .extenders
        .iter()
        .cloned()
        .map(|extender| Extender::new(extender, &options.clock));
    let extenders: Vec<Extender> = extenders.collect::<Result<_, _>>().map_err(StartError)?;
    let (sender, inbox) = mpsc::channel(events::CHANNEL_CAPACITY);
    let registrations = events::add_event_handlers(&options.informers, &sender);
    options.informers.start();
    let (done, synced) = watch::channel(false);
    let metrics = SchedulerMetrics::default();
    let scheduler = Scheduler::new(&options, extenders, sender.clone(), metrics.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(scheduler.run(inbox));
    tasks.spawn(async move {
        for registration in &registrations {
            registration.wait_for_sync().await;
        }
        let _ = sender.send(SchedulerMessage::Synced).await;
        done.send_replace(true);
        // Handlers stay registered for as long as their registrations live.
        std::future::pending::<()>().await;
    });
    Ok(Handle {
        informers: options.informers,
        synced,
        metrics,
        configuration: options.configuration,
        _tasks: tasks,
    })
}

impl Handle {
    /// The requests and limits of all pods, for `/metrics/resources`.
    pub fn pod_resources(&self) -> PodResourceMetrics {
        PodResourceMetrics(self.informers.objects(&PODS))
    }

    /// Waits until all informers have synced.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }
}

/// The metrics of the scheduler and of its informers.
impl Collector for Handle {
    fn collect(&self, families: &mut Families) {
        self.metrics.collect(families);
        for profile in &self.configuration.profiles {
            profile.metrics.collect(&profile.name, families);
        }
        self.informers.collect(families);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.informers.stop();
    }
}
