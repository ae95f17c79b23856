//! The context of a controller: client, shared informers, event recorder, clock and random numbers.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mizzen_value::time;
use serde::de::DeserializeOwned;

use super::source::Source;
use crate::clock::{self, Clock, Rng};
use crate::dynamic::DynamicClient;
use crate::event::{ApiSink, Broadcaster, Limits, Note, Recorder};
use crate::informer::{Factory, Informer};
use crate::object::Object;
use crate::rbac::{Rbac, RbacRule};
use crate::resource::ResourceType;
use crate::timeline::Timeline;

/// What a controller works with. Cheap to clone. Several controllers share one context, each under
/// its own [name](Context::named): they share informers and the recorder of events.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::controller::Context;
/// use mizzen_sdk::event::Note;
/// use mizzen_sdk::resource::NAMESPACES;
///
/// let context = Context::new(client).named("greeter");
/// let namespaces = context.informer(&NAMESPACES);
/// context.informers().start();
/// namespaces.wait_for_sync().await;
/// for namespace in namespaces.lister().list()? {
///     context.record_event(&NAMESPACES, &namespace, Note::normal("Greeted", "Greet", "hello"));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Context {
    /// Reads and writes objects of any kind; [`client`](DynamicClient::client) is kube's client.
    pub api: DynamicClient,
    /// The wall clock.
    pub clock: Clock,
    /// The source of random numbers.
    pub rng: Rng,
    name: Arc<str>,
    clients: Clients,
    timeline: Arc<Timeline>,
    informers: Factory,
    broadcaster: Arc<Broadcaster>,
    recorder: Recorder,
}

/// The client for the controller of a name. The name is empty for the shared informers, and `events`
/// for the writer of events.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::sync::Arc;
/// use mizzen_sdk::controller::{Clients, Context, ContextOptions};
///
/// // Each controller may have a client of its own, for example with a rate limit or a user of its own.
/// let clients: Clients = Arc::new(move |_controller: &str| client.clone());
/// let context = Context::with(ContextOptions::new(clients)).named("backup");
/// assert_eq!(context.name(), "backup");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// The options of a context.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::sync::Arc;
/// use mizzen_sdk::controller::{Context, ContextOptions};
/// use mizzen_sdk::informer::{Factory, FactoryOptions};
///
/// let namespaces = vec!["shop".into()];
/// let informers = Factory::with(client.clone(), FactoryOptions { namespaces, ..FactoryOptions::default() });
/// let options = ContextOptions::new(Arc::new(move |_| client.clone()));
/// let context = Context::with(ContextOptions { informers, ..options });
/// # drop(context);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ContextOptions {
    /// The clients.
    pub clients: Clients,
    /// The shared informers.
    pub informers: Factory,
    /// The wall clock.
    pub clock: Clock,
    /// The source of random numbers.
    pub rng: Rng,
}

impl ContextOptions {
    /// Informers of all namespaces, and the system clock.
    pub fn new(clients: Clients) -> ContextOptions {
        ContextOptions {
            informers: Factory::new(clients("")),
            clients,
            clock: clock::wall_clock(),
            rng: clock::rng(),
        }
    }
}

/// Controllers record Events, in the namespaces of their objects.
impl Rbac for Context {
    fn rules() -> Vec<RbacRule> {
        vec![RbacRule::new("", ["events"], ["create", "patch"])]
    }
}

impl Context {
    /// A context without a name, with one client for everything. Must be called within a runtime.
    pub fn new(client: Client) -> Context {
        Context::with(ContextOptions::new(Arc::new(move |_| client.clone())))
    }

    /// With options.
    pub fn with(options: ContextOptions) -> Context {
        let sinks: Vec<_> = vec![Box::new(ApiSink::core((options.clients)("events"))) as _];
        let broadcaster = Broadcaster::with(sinks, Limits::default(), options.clock.clone());
        Context {
            api: DynamicClient::new((options.clients)("")),
            timeline: Arc::new(Timeline::new(options.clock.clone())),
            clock: options.clock,
            rng: options.rng,
            name: Arc::from(""),
            clients: options.clients,
            informers: options.informers,
            recorder: broadcaster.recorder("", ""),
            broadcaster: Arc::new(broadcaster),
        }
    }

    /// The context of the controller of this name: its client, and its name in metrics, spans and as
    /// the source of events.
    pub fn named(&self, name: &str) -> Context {
        Context {
            api: DynamicClient::new((self.clients)(name)),
            name: Arc::from(name),
            ..self.with_event_source(name)
        }
    }

    /// The same context with another event source component.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::controller::Context;
    ///
    /// let context = Context::new(client).named("cronjob").with_event_source("cronjob-controller");
    /// assert_eq!(context.name(), "cronjob");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_event_source(&self, name: &str) -> Context {
        Context {
            recorder: self.broadcaster.recorder(name, ""),
            ..self.clone()
        }
    }

    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// kube's client, for `kube::Api`.
    pub fn client(&self) -> Client {
        self.api.client().clone()
    }

    /// The shared informer of a kind.
    pub fn informer<K>(&self, source: impl Into<Source<K>>) -> Informer<K>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        source.into().informer(&self.informers)
    }

    /// The shared informers.
    pub fn informers(&self) -> &Factory {
        &self.informers
    }

    /// The recorder of events.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Records an event about an untyped object. For a typed one use the
    /// [`recorder`](Context::recorder) and [`event::reference`](crate::event::reference).
    pub fn record_event(&self, resource: &ResourceType, object: &Object, note: Note) {
        let regarding = resource.reference(&object.key(), object.uid(), object.version());
        self.recorder.record(&regarding, note);
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The wall clock as RFC 3339 in whole seconds, as objects have it.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::controller::Context;
    ///
    /// let context = Context::new(client);
    /// assert!(context.now_text().ends_with('Z'));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn now_text(&self) -> String {
        time::from_unix(self.now().as_second())
    }

    /// The monotonic clock, for back-offs, grace periods and windows that this process measures.
    /// Steps of the wall clock do not change it, and it never appears in objects.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::controller::Context;
    ///
    /// let context = Context::new(client);
    /// let began = context.monotonic_now();
    /// assert!(context.monotonic_now() >= began); // even if the wall clock was set back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn monotonic_now(&self) -> Timestamp {
        self.timeline.now().monotonic
    }

    /// How long ago the wall clock showed a second, whatever steps it made since.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::controller::Context;
    ///
    /// let context = Context::new(client);
    /// let created = context.now().as_second() - 60; // of an object
    /// assert!(context.elapsed_since(created).as_secs() >= 60);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn elapsed_since(&self, second: i64) -> Duration {
        self.timeline
            .elapsed(Timestamp::from_second(second).unwrap_or(Timestamp::MIN))
    }
}
