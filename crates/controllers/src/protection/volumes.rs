//! PersistentVolume protection: the finalizer stays while the volume is bound.

use mizzen_sdk::controller::Context;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::PERSISTENT_VOLUMES;
use mizzen_sdk::{Key, Object};

use super::FinalizerPlan;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const FINALIZER: &str = "kubernetes.io/pv-protection";

struct PvProtection {
    context: ControllerContext,
    volumes: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("pv-protection-controller");
    let volumes = context.informer(&PERSISTENT_VOLUMES);
    Controller::for_kind(&context, &PERSISTENT_VOLUMES)
        .queue_name("pvprotection")
        .reconcile(PvProtection { context, volumes })
}

impl Reconcile for PvProtection {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(volume) = self.volumes.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let is_used = volume["status"]["phase"].str() == "Bound";
        match super::plan(&volume, FINALIZER) {
            FinalizerPlan::Add => {
                super::add_finalizer(&self.context, &PERSISTENT_VOLUMES, &volume, FINALIZER).await?
            }
            FinalizerPlan::RemoveIfUnused if !is_used => {
                super::remove_finalizer(&self.context, &PERSISTENT_VOLUMES, &volume, FINALIZER)
                    .await?;
            }
            _ => (),
        }
        Ok(Action::done())
    }
}
