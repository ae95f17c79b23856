//! Event handlers on the informers. They parse objects beside the scheduling loop and send them to
//! it as messages.

use std::sync::Arc;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Factory, Handler, Registration};
use mizzen_sdk::resource::{
    CSI_DRIVERS, CSI_NODES, CSI_STORAGE_CAPACITIES, DEVICE_CLASSES, NAMESPACES, NODES,
    PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS,
    REPLICATION_CONTROLLERS, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICES, STATEFUL_SETS,
    STORAGE_CLASSES, VOLUME_ATTACHMENTS,
};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Str;
use tokio::sync::mpsc::Sender;

use crate::bind::BindFailure;
use crate::model::{NodeFacts, PodInfo};

/// The capacity of the channel; when it is full, the handlers wait.
pub(crate) const CHANNEL_CAPACITY: usize = 4096;

/// A message to the scheduling loop.
pub(crate) enum SchedulerMessage {
    /// A pod was added or updated.
    Pod(Arc<PodInfo>),
    /// A pod was deleted or has terminated.
    PodGone(Str),
    Node(Box<NodeFacts>),
    NodeGone(Str),
    /// Another object was added or updated; `None` if it was deleted.
    Object(&'static ResourceType, Key, Option<Arc<Object>>),
    /// All informers have synced.
    Synced,
    /// The binding cycle of a pod has ended.
    Bound {
        uid: Str,
        outcome: Result<(), BindFailure>,
    },
    /// The victims of a preemptor were deleted, or not.
    Preempted {
        uid: Str,
        done: bool,
    },
    /// The status of a pod was written.
    Reported {
        uid: Str,
    },
}

/// The other resources with handlers.
const OTHER_RESOURCES: [&ResourceType; 16] = [
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

/// Forwards the events of one resource.
struct EventForwarder<R> {
    sender: Sender<SchedulerMessage>,
    read: R,
}

impl<R: Fn(&Entry<Object>, bool) -> Option<SchedulerMessage> + Send + Sync + 'static>
    Handler<Object> for EventForwarder<R>
{
    async fn handle(&mut self, event: Event<Object>) {
        let gone = matches!(event, Event::Deleted { .. });
        if let Some(message) = (self.read)(event.object(), gone) {
            // The send fails only when the scheduler has stopped.
            let _ = self.sender.send(message).await;
        }
    }
}

/// Adds a handler for every resource that the scheduler watches (upstream: addAllEventHandlers).
pub(crate) fn add_event_handlers(
    informers: &Factory,
    sender: &Sender<SchedulerMessage>,
) -> Vec<Registration<Object>> {
    let mut registrations = vec![
        add_handler(informers, sender, &PODS, |entry, gone| {
            if !gone && let Some(pod) = PodInfo::from_entry(entry) {
                return Some(SchedulerMessage::Pod(Arc::new(pod)));
            }
            Some(SchedulerMessage::PodGone(entry.uid().into()))
        }),
        add_handler(informers, sender, &NODES, |entry, gone| {
            if gone {
                return Some(SchedulerMessage::NodeGone(entry.key().name().into()));
            }
            let object = entry.object().ok()?;
            Some(SchedulerMessage::Node(Box::new(NodeFacts::from_node(
                &object,
            ))))
        }),
    ];
    registrations.extend(OTHER_RESOURCES.map(|resource| {
        add_handler(informers, sender, resource, move |entry, gone| {
            let object = if gone {
                None
            } else {
                Some(entry.object().ok()?)
            };
            Some(SchedulerMessage::Object(
                resource,
                entry.key().clone(),
                object,
            ))
        })
    }));
    registrations
}

fn add_handler(
    informers: &Factory,
    sender: &Sender<SchedulerMessage>,
    resource: &ResourceType,
    read: impl Fn(&Entry<Object>, bool) -> Option<SchedulerMessage> + Send + Sync + 'static,
) -> Registration<Object> {
    informers.objects(resource).add_handler(EventForwarder {
        sender: sender.clone(),
        read,
    })
}
