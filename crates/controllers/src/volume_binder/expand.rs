//! The expand controller: records which external resizer an expanding claim waits for.

use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, value};

use super::legacy;
use super::matching::request;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

/// The annotation with the resizer.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// The annotation with the capacity before an expansion, while the file system has not been
/// resized.
const BEFORE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

struct ExpandController {
    context: ControllerContext,
    claims: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("expand-controller")
        .with_event_source("volume_expand");
    let claims = context.informer(&PERSISTENT_VOLUME_CLAIMS);
    let source = dynamic(&PERSISTENT_VOLUME_CLAIMS).filter(Predicate::new(is_expansion));
    Controller::for_kind(&context, source)
        .queue_name("volume_expand")
        .workers(10)
        .reconcile(ExpandController { context, claims })
}

/// The event is recorded once for each expansion, not for every change of the claim.
fn is_expansion(event: &Event<Object>) -> bool {
    match event {
        Event::Added { object, .. } => object.object().is_ok_and(|claim| is_bound(&claim)),
        Event::Updated { old, new } => match (old.object(), new.object()) {
            (Ok(old), Ok(new)) => {
                let has_grown = request(&new) > request(&old) || capacity(&new) > capacity(&old);
                is_bound(&new) && has_grown
            }
            _ => false,
        },
        Event::Deleted { .. } => false,
    }
}

impl Reconcile for ExpandController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let volume = Key::cluster(claim["spec"]["volumeName"].str());
        let volume = self.context.api.get(&PERSISTENT_VOLUMES, &volume).await?;
        if volume["spec"]["claimRef"]["uid"].str() != claim.uid() {
            return Err(Error::other(format!(
                "persistent Volume is not bound to PVC being updated : {key}"
            )));
        }
        if request(&claim) > capacity(&claim) || volume.annotation(BEFORE).is_some() {
            self.record_external_expander(&claim, &volume).await?;
        }
        Ok(Action::done())
    }
}

impl ExpandController {
    async fn record_external_expander(&self, claim: &Object, volume: &Object) -> Result<(), Error> {
        let record = |message: String| {
            let note = Note::normal("ExternalExpanding", "", message);
            self.context
                .record_event(&PERSISTENT_VOLUME_CLAIMS, claim, note);
        };
        let Some((plugin, driver)) = legacy::source_of(volume) else {
            record("waiting for an external controller to expand this PVC".into());
            return Ok(());
        };
        record(format!(
            "CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc"
        ));
        if claim.annotation(RESIZER) == Some(driver) {
            return Ok(());
        }
        let mut annotations = Value::object();
        annotations.set(RESIZER, driver);
        let change = value!({
            "metadata": {"resourceVersion": (claim.version()), "annotations": annotations}
        });
        let (api, key) = (&self.context.api, claim.key());
        api.patch(
            &PERSISTENT_VOLUME_CLAIMS,
            &key,
            "status",
            PatchType::Strategic,
            &change,
        )
        .await?;
        Ok(())
    }
}

fn is_bound(claim: &Object) -> bool {
    claim["status"]["phase"].str() == "Bound"
}

fn capacity(claim: &Value) -> Quantity {
    Quantity::parse_or_zero(claim["status"]["capacity"]["storage"].str())
}
