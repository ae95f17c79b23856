//! All loops together: set up, caches filled, at work until stopped.

use mizzen_sdk::informer::Factory;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::context::{Context, Options};
use crate::{LOOPS, Work};

/// Loops at work. They stop when this is dropped.
pub struct Handle {
    informers: Factory,
    synced: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

/// The names of all loops.
pub fn names() -> impl Iterator<Item = &'static str> {
    LOOPS.iter().map(|(name, _)| *name)
}

/// Sets up the loops and lets them work as soon as their caches are filled.
pub fn start(options: Options) -> Handle {
    let context = Context::new(options);
    let wanted = |name: &str| {
        let chosen = &context.options.loops;
        chosen.is_empty() || chosen.iter().any(|one| one == name)
    };
    let works: Vec<Work> =
        LOOPS.iter().filter(|(name, _)| wanted(name)).map(|(_, start)| start(&context)).collect();
    let (done, synced) = watch::channel(false);
    let informers = context.informers().clone();
    informers.start();
    let mut tasks = JoinSet::new();
    tasks.spawn(work(informers.clone(), works, done));
    Handle { informers, synced, _tasks: tasks }
}

async fn work(informers: Factory, works: Vec<Work>, done: watch::Sender<bool>) {
    informers.wait_for_sync().await;
    let mut tasks: JoinSet<()> = works.into_iter().flat_map(|work| work.tasks).collect();
    done.send_replace(true);
    while tasks.join_next().await.is_some() {}
}

impl Handle {
    /// Waits until all caches are filled.
    pub async fn synced(&self) {
        let mut synced = self.synced.clone();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// How the caches are doing, in Prometheus' text form.
    pub fn metrics_text(&self) -> String {
        self.informers.metrics_text()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.informers.stop();
    }
}
