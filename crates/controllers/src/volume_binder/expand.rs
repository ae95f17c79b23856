//! Who makes a volume larger when its claim asks for more? Not we, but people are told who is waited for.

use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use mizzen_sdk::{Key, Object};
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, value};

use super::legacy;
use super::matching::request;
use crate::{After, Context, Error, Reconcile, Work};

/// Says which driver makes a claim's volume larger.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// Says how large a volume was before; it is there until the file system has grown, too.
const BEFORE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

struct Expander {
    context: Context,
    claims: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("expand-controller")
        .recording_as("volume_expand");
    let queue = context.queue("volume_expand");
    let claims = context.follow(&PERSISTENT_VOLUME_CLAIMS);
    let todo = queue.clone();
    // Who is waited for is said once for each growth, not whenever a claim changes.
    claims.add_handler(move |event: Event<Object>| {
        let is_news = match &event {
            Event::Added { object, .. } => object.object().is_ok_and(|claim| is_bound(&claim)),
            Event::Updated { old, new } => match (old.object(), new.object()) {
                (Ok(old), Ok(new)) => is_bound(&new) && has_grown(&old, &new),
                _ => false,
            },
            Event::Deleted { .. } => false,
        };
        if is_news {
            todo.add(event.key().clone());
        }
    });
    Work::new(queue, 10, Arc::new(Expander { context, claims }))
}

impl Reconcile for Expander {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let volume = Key::cluster(claim["spec"]["volumeName"].str());
        let volume = self.context.api.get(&PERSISTENT_VOLUMES, &volume).await?;
        if volume["spec"]["claimRef"]["uid"].str() != claim.uid() {
            return Err(Error::Other(format!(
                "persistent Volume is not bound to PVC being updated : {key}"
            )));
        }
        if request(&claim) > capacity(&claim) || volume.annotation(BEFORE).is_some() {
            self.leave_to_others(&claim, &volume).await?;
        }
        Ok(After::Done)
    }
}

impl Expander {
    async fn leave_to_others(&self, claim: &Object, volume: &Object) -> Result<(), Error> {
        let tell = |message: String| {
            let note = Note::normal("ExternalExpanding", "", message);
            self.context.record(&PERSISTENT_VOLUME_CLAIMS, claim, note);
        };
        let Some((plugin, driver)) = legacy::source_of(volume) else {
            tell("waiting for an external controller to expand this PVC".into());
            return Ok(());
        };
        tell(format!(
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
            Patch::Strategic,
            &change,
        )
        .await?;
        Ok(())
    }
}

fn is_bound(claim: &Object) -> bool {
    claim["status"]["phase"].str() == "Bound"
}

/// Whether a claim asks for more than it did, or has more.
fn has_grown(old: &Object, new: &Object) -> bool {
    request(new) > request(old) || capacity(new) > capacity(old)
}

fn capacity(claim: &Value) -> Quantity {
    Quantity::of(claim["status"]["capacity"]["storage"].str())
}
