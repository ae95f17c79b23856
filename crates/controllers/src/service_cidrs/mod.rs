//! The ServiceCIDR controller: a ServiceCIDR is deleted only when no IPAddress depends on it.

mod plan;

use std::time::Duration;

use mizzen_sdk::controller::{Context, dynamic};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{IP_ADDRESSES, SERVICE_CIDRS};
use mizzen_sdk::write::ignore_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{ServiceCidrPlan, plan};

const MANAGER: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const WORKERS: usize = 5;

struct ServiceCidrController {
    context: ControllerContext,
    ranges: Informer<Object>,
    addresses: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("service-cidrs-controller")
        .with_event_source(MANAGER);
    let ranges = context.informer(&SERVICE_CIDRS);
    let addresses = context.informer(&IP_ADDRESSES);
    // A ServiceCIDR in deletion may wait for any other ServiceCIDR or IPAddress.
    let all = ranges.lister();
    let enqueue_terminating = move |queue: &Queue<Key>| {
        let ranges = all.list().unwrap_or_default();
        let terminating = ranges.iter().filter(|range| range.is_terminating());
        terminating.for_each(|range| queue.add(range.key()));
    };
    let of_addresses = enqueue_terminating.clone();
    let source = dynamic(&SERVICE_CIDRS).handler(move |event, queue| {
        queue.add(event.key().clone());
        enqueue_terminating(queue);
    });
    Controller::for_kind(&context, source)
        .watches_events(&IP_ADDRESSES, move |event, queue| {
            if !matches!(event, Event::Updated { .. }) {
                of_addresses(queue);
            }
        })
        .queue_name("ipaddresses")
        .workers(WORKERS)
        .reconcile(ServiceCidrController {
            context,
            ranges,
            addresses,
        })
}

impl Reconcile for ServiceCidrController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(range) = self.ranges.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let ranges = self.ranges.lister().list()?;
        let addresses = self.addresses.lister().list()?;
        match plan(&range, &ranges, &addresses, self.context.now().as_second()) {
            ServiceCidrPlan::Serve => {
                if !range.has_finalizer(FINALIZER) {
                    let finalizers = value!({"metadata": {"finalizers": [FINALIZER]}});
                    self.patch(&range, "", PatchType::Strategic, &finalizers)
                        .await?;
                }
                self.set_ready_condition(&range, ("True", "", "Kubernetes Service CIDR is ready"))
                    .await?;
            }
            ServiceCidrPlan::Stay => {
                const WHY: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.set_ready_condition(&range, ("False", "Terminating", WHY))
                    .await?;
            }
            ServiceCidrPlan::Wait(seconds) => {
                return Ok(Action::requeue_after(Duration::from_secs(seconds)));
            }
            ServiceCidrPlan::RemoveFinalizer if range.has_finalizer(FINALIZER) => {
                let change =
                    value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
                self.patch(&range, "", PatchType::Strategic, &change)
                    .await?;
            }
            ServiceCidrPlan::RemoveFinalizer => {}
        }
        Ok(Action::done())
    }
}

impl ServiceCidrController {
    /// Sets the Ready condition if it differs.
    async fn set_ready_condition(
        &self,
        range: &Object,
        (status, reason, message): (&str, &str, &str),
    ) -> Result<(), Error> {
        let is_it = |known: &&Value| known["type"].str() == "Ready";
        let known = range["status"]["conditions"].list().iter().find(is_it);
        let wanted = [("status", status), ("reason", reason), ("message", message)];
        if known.is_some_and(|known| {
            wanted
                .iter()
                .all(|(field, text)| known[*field].str() == *text)
        }) {
            return Ok(());
        }
        let now = self.context.now_text();
        let condition = value!({
            "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": now
        });
        let name = range.name();
        let change = value!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name},
            "status": {"conditions": [(condition)]}
        });
        self.patch(
            range,
            "status",
            PatchType::Apply { manager: MANAGER },
            &change,
        )
        .await
    }

    async fn patch(
        &self,
        range: &Object,
        subresource: &str,
        how: PatchType<'_>,
        change: &Value,
    ) -> Result<(), Error> {
        Ok(ignore_not_found(
            self.context
                .api
                .patch(&SERVICE_CIDRS, &range.key(), subresource, how, change)
                .await,
        )?)
    }
}
