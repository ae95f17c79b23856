//! What does the loop hear? Objects are read where they arrive, beside the loop, and sent to it one after the other.

use std::sync::Arc;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Factory, Handler, Registration};
use mizzen_sdk::resource::{
    CSI_DRIVERS, CSI_NODES, CSI_STORAGE_CAPACITIES, DEVICE_CLASSES, NAMESPACES, NODES,
    PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS,
    REPLICATION_CONTROLLERS, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICES, STATEFUL_SETS,
    STORAGE_CLASSES, VOLUME_ATTACHMENTS,
};
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Str;
use tokio::sync::mpsc::Sender;

use crate::model::{NodeFacts, Pod};

/// How many letters may wait; then those who send them do.
pub(crate) const ROOM: usize = 4096;

/// Something that the loop hears.
pub(crate) enum Letter {
    /// A pod as it is.
    Pod(Arc<Pod>),
    /// A pod is gone, or has ended.
    PodGone(Str),
    Node(Box<NodeFacts>),
    NodeGone(Str),
    /// Another object as it is; none if it is gone.
    Object(&'static Resource, Key, Option<Arc<Object>>),
    /// All that there was has been told.
    Synced,
    /// A pod was bound, or not.
    Bound {
        uid: Str,
        outcome: Result<(), String>,
    },
    /// Pods were let go for a pod, or not.
    Preempted {
        uid: Str,
        done: bool,
    },
    /// A pod's status was written.
    Reported {
        uid: Str,
    },
}

/// Everything else that is followed.
const OTHERS: [&Resource; 16] = [
    &NAMESPACES,
    &SERVICES,
    &REPLICATION_CONTROLLERS,
    &REPLICA_SETS,
    &STATEFUL_SETS,
    &POD_DISRUPTION_BUDGETS,
    &PERSISTENT_VOLUME_CLAIMS,
    &PERSISTENT_VOLUMES,
    &STORAGE_CLASSES,
    &CSI_NODES,
    &CSI_DRIVERS,
    &CSI_STORAGE_CAPACITIES,
    &VOLUME_ATTACHMENTS,
    &RESOURCE_CLAIMS,
    &RESOURCE_SLICES,
    &DEVICE_CLASSES,
];

/// Who listens to one kind.
struct Reader<R> {
    sender: Sender<Letter>,
    read: R,
}

impl<R: Fn(&Entry<Object>, bool) -> Option<Letter> + Send + Sync + 'static> Handler<Object>
    for Reader<R>
{
    async fn handle(&mut self, event: Event<Object>) {
        let gone = matches!(event, Event::Deleted { .. });
        if let Some(letter) = (self.read)(event.object(), gone) {
            // Nobody reads any more when the scheduler has stopped.
            let _ = self.sender.send(letter).await;
        }
    }
}

/// Lets `sender` hear of everything that matters, and at last that it has heard all that there was.
pub(crate) fn follow(informers: &Factory, sender: &Sender<Letter>) -> Vec<Registration<Object>> {
    let mut registrations = vec![
        listen(informers, sender, &PODS, pod),
        listen(informers, sender, &NODES, node),
    ];
    registrations.extend(OTHERS.map(|resource| {
        listen(informers, sender, resource, move |entry, gone| {
            let object = if gone {
                None
            } else {
                Some(entry.object().ok()?)
            };
            Some(Letter::Object(resource, entry.key().clone(), object))
        })
    }));
    registrations
}

fn listen(
    informers: &Factory,
    sender: &Sender<Letter>,
    resource: &Resource,
    read: impl Fn(&Entry<Object>, bool) -> Option<Letter> + Send + Sync + 'static,
) -> Registration<Object> {
    informers.objects(resource).add_handler(Reader {
        sender: sender.clone(),
        read,
    })
}

fn pod(entry: &Entry<Object>, gone: bool) -> Option<Letter> {
    let pod = if gone { None } else { Pod::of(entry) };
    Some(pod.map_or_else(
        || Letter::PodGone(entry.uid().into()),
        |pod| Letter::Pod(Arc::new(pod)),
    ))
}

fn node(entry: &Entry<Object>, gone: bool) -> Option<Letter> {
    if gone {
        return Some(Letter::NodeGone(entry.key().name().into()));
    }
    let object = entry.object().ok()?;
    Some(Letter::Node(Box::new(NodeFacts::of(&object))))
}
