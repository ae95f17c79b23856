//! Starts all controllers, and stops them.

use mizzen_sdk::informer::Factory;
use mizzen_sdk::metrics::{Collector, Families};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::CONTROLLERS;
use crate::context::{ControllerContext, Options};

/// The running controllers. They stop when it is dropped.
pub struct Handle {
    informers: Factory,
    synced: watch::Receiver<bool>,
    /// The names of the running controllers.
    running: Vec<&'static str>,
    collectors: Vec<Box<dyn Collector>>,
    _tasks: JoinSet<()>,
}

/// The names of all controllers.
pub fn names() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.iter().map(|(name, _)| *name)
}

/// Starts the controllers; each works once its informers have synced.
pub fn start(options: Options) -> Handle {
    let context = ControllerContext::new(options);
    let wanted = |name: &str| {
        let chosen = &context.options.controllers;
        chosen.is_empty() || chosen.iter().any(|one| one == name)
    };
    let n_workers = |name: &str| context.options.n_workers.get(name).copied();
    let (mut running, mut collectors, mut work) = (Vec::new(), Vec::new(), Vec::new());
    for (name, start) in CONTROLLERS.iter().filter(|(name, _)| wanted(name)) {
        let mut own = start(&context);
        running.push(*name);
        collectors.extend(own.take_collectors());
        work.extend(own.into_tasks(name, n_workers(name)));
    }
    let (done, synced) = watch::channel(false);
    let informers = context.informers().clone();
    informers.start();
    let mut tasks = JoinSet::new();
    let caches = informers.clone();
    tasks.spawn(async move {
        caches.wait_for_sync().await;
        let mut tasks: JoinSet<()> = work.into_iter().collect();
        done.send_replace(true);
        while tasks.join_next().await.is_some() {}
    });
    Handle {
        informers,
        synced,
        running,
        collectors,
        _tasks: tasks,
    }
}

impl Handle {
    /// Waits until all informers have synced.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }
}

/// Metrics of work queues and informers, and which controllers run.
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
        self.collectors
            .iter()
            .for_each(|collector| collector.collect(families));
        self.informers.collect(families);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.informers.stop();
    }
}
