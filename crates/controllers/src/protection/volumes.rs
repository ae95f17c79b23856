//! A volume stays while a claim has it.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::PERSISTENT_VOLUMES;
use mizzen_sdk::{Key, Object};

use super::Plan;
use crate::{After, Context, Error, Reconcile, Work};

const FINALIZER: &str = "kubernetes.io/pv-protection";

struct Volumes {
    context: Context,
    volumes: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("pv-protection-controller");
    let queue = context.queue("pvprotection");
    let volumes = context.follow(&PERSISTENT_VOLUMES);
    let todo = queue.clone();
    volumes.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(queue, 1, Arc::new(Volumes { context, volumes }))
}

impl Reconcile for Volumes {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(volume) = self.volumes.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let is_used = volume["status"]["phase"].str() == "Bound";
        match super::plan(&volume, FINALIZER) {
            Plan::Add => super::add(&self.context, &PERSISTENT_VOLUMES, &volume, FINALIZER).await?,
            Plan::RemoveIfUnused if !is_used => {
                super::remove(&self.context, &PERSISTENT_VOLUMES, &volume, FINALIZER).await?;
            }
            _ => (),
        }
        Ok(After::Done)
    }
}
