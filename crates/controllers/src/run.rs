//! Starts all controllers, and stops them.

use mizzen_sdk::controller::{Controller, ControllerMetrics};
use mizzen_sdk::informer::Factory;
use mizzen_sdk::metrics::{Collector, Families};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::CONTROLLERS;
use crate::context::{ControllerContext, Options};

/// The running controllers. They end at once when it is dropped.
pub struct Handle {
    informers: Factory,
    synced: watch::Receiver<bool>,
    stopping: watch::Sender<bool>,
    /// The names of the running controllers.
    running: Vec<&'static str>,
    metrics: Vec<ControllerMetrics>,
    tasks: JoinSet<()>,
}

/// The names of all controllers.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name)
}

/// Starts the controllers; they work once all informers have synced.
pub fn start(options: Options) -> Handle {
    let context = ControllerContext::new(options);
    let wanted = |name: &str| {
        let chosen = &context.options.controllers;
        chosen.is_empty() || chosen.iter().any(|one| one == name)
    };
    let controllers = CONTROLLERS.iter().filter(|(name, _)| wanted(name));
    let controllers: Vec<Controller> = controllers
        .map(|(name, start)| {
            let controller = start(&context).with_name(name);
            match context.options.n_workers.get(*name) {
                Some(n_workers) => controller.with_workers(*n_workers),
                None => controller,
            }
        })
        .collect();
    let (stopping, stop) = watch::channel(false);
    let (done, synced) = watch::channel(false);
    let informers = context.informers().clone();
    informers.start();
    let mut handle = Handle {
        informers: informers.clone(),
        synced,
        stopping,
        running: names().filter(|name| wanted(name)).collect(),
        metrics: controllers.iter().map(Controller::metrics).collect(),
        tasks: JoinSet::new(),
    };
    handle.tasks.spawn(async move {
        informers.wait_for_sync().await;
        let run = controllers.into_iter().map(|controller| {
            let mut stop = stop.clone();
            async move {
                let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
                if let Err(error) = controller.run(stopped).await {
                    tracing::error!(%error, "controller ended");
                }
            }
        });
        let mut running: JoinSet<()> = run.collect();
        done.send_replace(true);
        while running.join_next().await.is_some() {}
    });
    handle
}

impl Handle {
    /// Waits until all informers have synced.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Stops the controllers: running reconciles end, and none starts.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Metrics of controllers, work queues and informers, and which controllers run.
impl Collector for Handle {
    fn collect(&self, families: &mut Families) {
        let running = families.gauge(
            "running_managed_controllers",
            "Controllers that run in this process.",
        );
        for name in &self.running {
            running.add(
                &[("manager", "kube-controller-manager"), ("name", *name)],
                1,
            );
        }
        self.metrics
            .iter()
            .for_each(|metrics| metrics.collect(families));
        self.informers.collect(families);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.informers.stop();
    }
}
