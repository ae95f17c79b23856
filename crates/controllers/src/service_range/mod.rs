//! May a range of services' addresses go? Not while a service has an address that no other range has.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::api::Patch;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{IP_ADDRESSES, SERVICE_CIDRS};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{After, Context, Error, Reconcile, Work};
use plan::{Plan, plan};

const MANAGER: &str = "service-cidr-controller";
/// Keeps a range while somebody needs it.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const WORKERS: usize = 5;

struct Ranges {
    context: Context,
    ranges: Informer<Object>,
    addresses: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("service-cidrs-controller")
        .recording_as(MANAGER);
    let queue = context.queue("ipaddresses");
    let (ranges, addresses) = (
        context.follow(&SERVICE_CIDRS),
        context.follow(&IP_ADDRESSES),
    );
    // A range that goes may be waiting for any other range, and for any address.
    let (todo, all) = (queue.clone(), ranges.clone());
    let look_again = move || {
        let going = all.lister().list().unwrap_or_default();
        going
            .iter()
            .filter(|range| range.is_going())
            .for_each(|range| todo.add(range.key()));
    };
    let (todo, look) = (queue.clone(), look_again.clone());
    ranges.add_handler(move |event: Event<Object>| {
        todo.add(event.key().clone());
        look();
    });
    addresses.add_handler(move |event: Event<Object>| {
        if !matches!(event, Event::Updated { .. }) {
            look_again();
        }
    });
    Work::new(
        queue,
        WORKERS,
        Arc::new(Ranges {
            context,
            ranges,
            addresses,
        }),
    )
}

impl Reconcile for Ranges {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(range) = self.ranges.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let (ranges, addresses) = (
            self.ranges.lister().list()?,
            self.addresses.lister().list()?,
        );
        match plan(&range, &ranges, &addresses, self.context.now().as_second()) {
            Plan::Serve => {
                if !range.has_finalizer(FINALIZER) {
                    let finalizers = value!({"metadata": {"finalizers": [FINALIZER]}});
                    self.patch(&range, "", Patch::Strategic, &finalizers)
                        .await?;
                }
                self.say(&range, ("True", "", "Kubernetes Service CIDR is ready"))
                    .await?;
            }
            Plan::Stay => {
                const WHY: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
                self.say(&range, ("False", "Terminating", WHY)).await?;
            }
            Plan::Wait(seconds) => return Ok(After::Again(Duration::from_secs(seconds))),
            Plan::Go if range.has_finalizer(FINALIZER) => {
                let change =
                    value!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
                self.patch(&range, "", Patch::Strategic, &change).await?;
            }
            Plan::Go => {}
        }
        Ok(After::Done)
    }
}

impl Ranges {
    /// Says whether a range is ready, unless it says so already.
    async fn say(
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
        self.patch(range, "status", Patch::Apply { manager: MANAGER }, &change)
            .await
    }

    async fn patch(
        &self,
        range: &Object,
        subresource: &str,
        how: Patch<'_>,
        change: &Value,
    ) -> Result<(), Error> {
        match self
            .context
            .api
            .patch(&SERVICE_CIDRS, &range.key(), subresource, how, change)
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
