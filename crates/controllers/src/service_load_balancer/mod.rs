//! The service controller with a simulated cloud: Services of type LoadBalancer get external
//! addresses.
//!
//! Kubernetes: cloud-provider/controllers/service/controller.go. The simulated cloud has addresses
//! and no backends, so nodes do not matter.
//!
//! | file | contents |
//! |---|---|
//! | `change` | which updates of a Service affect its load balancer |
//! | `cloud` | load balancers and their addresses |
//!
//! Invariant: before the first allocation the cloud has the addresses of all existing Services.

mod change;
mod cloud;

use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Exponential;
use mizzen_sdk::resource::SERVICES;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use change::{needs_cleanup, needs_update, wants_load_balancer};
use cloud::Cloud;

/// The finalizer of Services with a load balancer.
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Upstream's default of `--concurrent-service-syncs`.
const WORKERS: usize = 1;
/// The shortest and the longest retry delay.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

struct ServiceController {
    context: ControllerContext,
    services: Informer<Object>,
    cloud: OnceLock<Mutex<Cloud>>,
}

/// Creates the controller. Without ranges it does nothing.
pub(crate) fn start(context: &ControllerContext) -> Controller {
    if context.options.load_balancer_ranges.is_empty() {
        return Controller::new(context);
    }
    let context = context.named("service-controller");
    let services = context.informer(&SERVICES);
    let source = dynamic(&SERVICES).filter(Predicate::new(is_relevant));
    Controller::for_kind(&context, source)
        .queue_name("service")
        .rate_limiter(Exponential::new(RETRY_DELAYS.0, RETRY_DELAYS.1))
        .workers(WORKERS)
        .reconcile(ServiceController {
            context,
            services,
            cloud: OnceLock::new(),
        })
}

/// Whether the load balancer of a Service may change. A deletion matters only if the finalizer was
/// removed by hand: the sync then frees the address.
fn is_relevant(event: &Event<Object>) -> bool {
    let Ok(service) = event.object().object() else {
        return false;
    };
    match event {
        Event::Updated { old, .. } => {
            needs_cleanup(&service) || old.object().is_ok_and(|old| needs_update(&old, &service))
        }
        _ => wants_load_balancer(&service) || needs_cleanup(&service),
    }
}

impl Reconcile for ServiceController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let service = self.services.lister().by_key(key)?;
        let uid = service.as_ref().map(|service| service.uid());
        if let Some(deleted) = self.cloud()?.take_other(key, uid) {
            self.record(&deleted, "DeletingLoadBalancer", "Deleting load balancer");
            self.record(&deleted, "DeletedLoadBalancer", "Deleted load balancer");
        }
        let Some(service) = service else {
            return Ok(Action::done());
        };
        let outcome = match wants_load_balancer(&service) && !needs_cleanup(&service) {
            true => self.ensure(&service).await,
            false => self.clean_up(&service).await,
        };
        if let Err(error) = &outcome {
            let message = format!("Error syncing load balancer: {error}");
            self.context.record_event(
                &SERVICES,
                &service,
                Note::warning("SyncLoadBalancerFailed", "", message),
            );
        }
        outcome.map(|()| Action::done())
    }
}

impl ServiceController {
    /// The cloud, with the addresses of all existing Services.
    fn cloud(&self) -> Result<MutexGuard<'_, Cloud>, Error> {
        let cloud = match self.cloud.get() {
            Some(cloud) => cloud,
            None => {
                let mut cloud = Cloud::new(self.context.options.load_balancer_ranges.clone());
                let services = self.services.lister().list()?;
                services
                    .iter()
                    .filter(|one| one.has_finalizer(FINALIZER))
                    .for_each(|one| cloud.adopt(one));
                self.cloud.get_or_init(|| Mutex::new(cloud))
            }
        };
        Ok(cloud.lock())
    }

    async fn ensure(&self, service: &Arc<Object>) -> Result<(), Error> {
        self.record(service, "EnsuringLoadBalancer", "Ensuring load balancer");
        if !service.has_finalizer(FINALIZER) {
            let change = value!({"metadata": {"finalizers": [FINALIZER]}});
            self.patch(service, &change).await.map_err(|error| {
                Error::other(format!(
                    "failed to add load balancer cleanup finalizer: {error}"
                ))
            })?;
        }
        let addresses = self
            .cloud()?
            .ensure(service)
            .map_err(|error| Error::other(format!("failed to ensure load balancer: {error}")))?;
        self.record(service, "EnsuredLoadBalancer", "Ensured load balancer");
        let ingress = addresses
            .iter()
            .map(|ip| value!({"ip": (ip.to_string()), "ipMode": "VIP"}));
        self.patch_status(service, ingress.collect()).await
    }

    async fn clean_up(&self, service: &Arc<Object>) -> Result<(), Error> {
        if self.cloud()?.delete(&service.key()) {
            self.record(service, "DeletingLoadBalancer", "Deleting load balancer");
        }
        if service.has_finalizer(FINALIZER) {
            let change = value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
            self.patch(service, &change).await.map_err(|error| {
                Error::other(format!(
                    "failed to remove load balancer cleanup finalizer: {error}"
                ))
            })?;
        }
        self.record(service, "DeletedLoadBalancer", "Deleted load balancer");
        self.patch_status(service, Vec::new()).await
    }

    async fn patch_status(&self, service: &Object, ingress: Vec<Value>) -> Result<(), Error> {
        if service["status"]["loadBalancer"]["ingress"].list() == ingress.as_slice() {
            return Ok(());
        }
        let ingress = if ingress.is_empty() {
            Value::Null
        } else {
            ingress.into()
        };
        let change = value!({"status": {"loadBalancer": {"ingress": ingress}}});
        match self.patch(service, &change).await {
            // The Service may be deleted as soon as it has no finalizer.
            Err(error) if !is_not_found(&error) => Err(Error::other(format!(
                "failed to update load balancer status: {error}"
            ))),
            _ => Ok(()),
        }
    }

    /// Patches metadata and status through the status subresource, as the controller's role allows.
    async fn patch(&self, service: &Object, change: &Value) -> Result<(), kube::Error> {
        let patch = PatchType::Strategic;
        self.context
            .api
            .patch(&SERVICES, &service.key(), "status", patch, change)
            .await
            .map(drop)
    }

    fn record(&self, service: &Object, reason: &str, message: &str) {
        self.context
            .record_event(&SERVICES, service, Note::normal(reason, "", message));
    }
}
