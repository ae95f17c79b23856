//! Events that `kubectl describe` shows.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # use k8s_openapi::api::core::v1::{Event, Pod};
//! # let pod = Pod { metadata: kube::api::ObjectMeta { name: Some("web".into()), namespace: Some("default".into()), ..Default::default() }, ..Pod::default() };
//! # let events: kube::Api<Event> = kube::Api::all(client.clone());
//! use mizzen_sdk::event::{ApiSink, Broadcaster, Note, reference};
//!
//! let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::new(client))]);
//! let recorder = broadcaster.recorder("my-controller", "my-controller-0");
//! recorder.record(&reference(&pod, &()), Note::normal("Created", "Creating", "made a pod"));
//! broadcaster.stop().await; // sends what is left
//! # assert_eq!(events.list(&Default::default()).await?.items[0].reason.as_deref(), Some("Created"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each recorded event goes to every sink, and a sink is easily written:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use k8s_openapi::api::core::v1::ObjectReference;
//! use mizzen_sdk::event::{Broadcaster, CorrelatedEvent, Note, Sink};
//! # use std::pin::Pin;
//!
//! struct Print;
//!
//! impl Sink for Print {
//!     fn send<'a>(&'a mut self, event: &'a CorrelatedEvent) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
//!         println!("{} ({} times)", event.occurrence.note.message, event.count);
//!         Box::pin(std::future::ready(()))
//!     }
//! }
//!
//! let broadcaster = Broadcaster::new(vec![Box::new(Print)]);
//! let recorder = broadcaster.recorder("my-controller", "my-controller-0");
//! let pod = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
//! recorder.record(&pod, Note::warning("FailedPull", "Pulling", "no such image").annotated("image", "web:1"));
//! broadcaster.stop().await;
//! # });
//! ```
//!
//! Recording never waits: if the queue is full, an event is dropped and counted. Repetitions are
//! counted, similar events are aggregated, and a spam filter limits each source.

mod correlate;
mod sink;

pub use correlate::{CorrelatedEvent, Limits};
pub use sink::{ApiSink, LogSink, Sink};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::{self, Clock};
use correlate::Correlator;

/// The capacity of the queue.
const ROOM: usize = 1000;

/// The type of an event.
///
/// ```
/// use mizzen_sdk::event::{Note, Severity};
///
/// assert_eq!(Note::normal("Created", "Creating", "made a pod").severity, Severity::Normal);
/// assert_eq!(Severity::Warning.as_str(), "Warning");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something expected happened.
    Normal,
    /// Something needs attention.
    Warning,
}

impl Severity {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// The content of an event.
///
/// ```
/// use k8s_openapi::api::core::v1::ObjectReference;
/// use mizzen_sdk::event::Note;
///
/// let node = ObjectReference { kind: Some("Node".into()), name: Some("n1".into()), ..ObjectReference::default() };
/// let note = Note::warning("FailedPull", "Pulling", "no such image").related(node).annotated("image", "web:1");
/// assert_eq!(note.annotations["image"], "web:1");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// The type.
    pub severity: Severity,
    /// The reason: one CamelCase word for machines.
    pub reason: String,
    /// The action: one CamelCase word for machines.
    pub action: String,
    /// The message for users.
    pub message: String,
    /// Another object that it is about.
    pub related: Option<ObjectReference>,
    /// Annotations of the event.
    pub annotations: BTreeMap<String, String>,
}

impl Note {
    /// An event of type Normal.
    pub fn normal(reason: &str, action: &str, message: impl Into<String>) -> Note {
        Note::new(Severity::Normal, reason, action, message.into())
    }

    /// An event of type Warning.
    pub fn warning(reason: &str, action: &str, message: impl Into<String>) -> Note {
        Note::new(Severity::Warning, reason, action, message.into())
    }

    fn new(severity: Severity, reason: &str, action: &str, message: String) -> Note {
        let (related, annotations) = (None, BTreeMap::new());
        Note {
            severity,
            reason: reason.into(),
            action: action.into(),
            message,
            related,
            annotations,
        }
    }

    /// The same with a related object.
    pub fn related(self, related: ObjectReference) -> Note {
        Note {
            related: Some(related),
            ..self
        }
    }

    /// The same with an annotation.
    pub fn annotated(mut self, name: impl Into<String>, value: impl Into<String>) -> Note {
        self.annotations.insert(name.into(), value.into());
        self
    }
}

/// A recorded event: its content, object, source and time.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// # use std::pin::Pin;
/// # use k8s_openapi::api::core::v1::ObjectReference;
/// # use mizzen_sdk::event::{Broadcaster, Note, Sink};
/// use mizzen_sdk::event::CorrelatedEvent;
///
/// fn check(event: &CorrelatedEvent) {
///     let occurrence = &event.occurrence;
///     assert_eq!(occurrence.regarding.name.as_deref(), Some("web"));
///     assert_eq!((&*occurrence.controller, &*occurrence.instance), ("my-controller", "my-controller-0"));
/// }
/// # struct Check;
/// # impl Sink for Check {
/// #     fn send<'a>(&'a mut self, event: &'a CorrelatedEvent) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
/// #         Box::pin(async move { check(event) })
/// #     }
/// # }
/// # let broadcaster = Broadcaster::new(vec![Box::new(Check)]);
/// # let pod = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
/// # broadcaster.recorder("my-controller", "my-controller-0").record(&pod, Note::normal("Created", "Creating", "made a pod"));
/// # broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    /// The object.
    pub regarding: ObjectReference,
    /// The content.
    pub note: Note,
    /// The reporting controller.
    pub controller: String,
    /// The reporting instance.
    pub instance: String,
    /// The time.
    pub at: Timestamp,
}

/// A reference to an object, as events have it.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::event::reference;
///
/// let mut pod = Pod::default();
/// pod.metadata.name = Some("web".into());
/// let reference = reference(&pod, &());
/// assert_eq!((reference.kind.as_deref(), reference.name.as_deref()), (Some("Pod"), Some("web")));
/// ```
pub fn reference<K: Resource>(object: &K, kind: &K::DynamicType) -> ObjectReference {
    object.object_ref(kind)
}

/// A message to the sending task.
enum RecorderMessage {
    /// An occurrence, and when it was recorded.
    Occurrence(Box<Occurrence>, Instant),
    Stop,
}

/// Records events. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use k8s_openapi::api::core::v1::ObjectReference;
/// use mizzen_sdk::event::{Broadcaster, LogSink, Note, Recorder};
///
/// fn created(recorder: &Recorder, pod: &ObjectReference) {
///     recorder.record(pod, Note::normal("Created", "Creating", "made a pod")); // never waits
/// }
///
/// let broadcaster = Broadcaster::new(vec![Box::new(LogSink)]);
/// created(&broadcaster.recorder("my-controller", "my-controller-0"), &ObjectReference::default());
/// broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Recorder {
    controller: String,
    instance: String,
    channel: Sender<RecorderMessage>,
    dropped: Arc<AtomicU64>,
    clock: Clock,
}

impl Recorder {
    /// Records an event about an object. Never waits.
    pub fn record(&self, regarding: &ObjectReference, note: Note) {
        let occurrence = Occurrence {
            regarding: regarding.clone(),
            note,
            controller: self.controller.clone(),
            instance: self.instance.clone(),
            at: (self.clock)(),
        };
        let message = RecorderMessage::Occurrence(Box::new(occurrence), Instant::now());
        if self.channel.try_send(message).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends recorded events to sinks.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::event::{Broadcaster, LogSink};
///
/// let broadcaster = Broadcaster::new(vec![Box::new(LogSink)]);
/// let recorder = broadcaster.recorder("my-controller", "my-controller-0");
/// assert_eq!(broadcaster.dropped(), 0);
/// broadcaster.stop().await; // sends what is queued
/// # drop(recorder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Broadcaster {
    channel: Sender<RecorderMessage>,
    dropped: Arc<AtomicU64>,
    clock: Clock,
    task: JoinHandle<()>,
}

impl Broadcaster {
    /// Sends events to `sinks`, in the background.
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> Broadcaster {
        Broadcaster::with(sinks, Limits::default(), clock::wall_clock())
    }

    /// With limits and a clock.
    pub fn with(sinks: Vec<Box<dyn Sink>>, limits: Limits, clock: Clock) -> Broadcaster {
        let (channel, waiting) = channel(ROOM);
        let task = tokio::spawn(send(waiting, sinks, Correlator::new(limits)));
        Broadcaster {
            channel,
            dropped: Arc::default(),
            clock,
            task,
        }
    }

    /// A recorder for one instance of a controller.
    pub fn recorder(&self, controller: &str, instance: &str) -> Recorder {
        Recorder {
            controller: controller.into(),
            instance: instance.into(),
            channel: self.channel.clone(),
            dropped: self.dropped.clone(),
            clock: self.clock.clone(),
        }
    }

    /// The number of events dropped because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sends what is queued, and nothing that is recorded later.
    pub async fn stop(self) {
        let Broadcaster { channel, task, .. } = self;
        // Recorders may live on, so the channel does not close by itself.
        let _ = channel.send(RecorderMessage::Stop).await;
        let _ = task.await;
    }
}

async fn send(
    mut waiting: Receiver<RecorderMessage>,
    mut sinks: Vec<Box<dyn Sink>>,
    mut correlator: Correlator,
) {
    while let Some(RecorderMessage::Occurrence(occurrence, at)) = waiting.recv().await {
        let Some(event) = correlator.correlate(*occurrence, at) else {
            continue;
        };
        for sink in &mut sinks {
            sink.send(&event).await;
        }
    }
}
