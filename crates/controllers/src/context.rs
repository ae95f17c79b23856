//! The controller context: API client, shared informers, event recorder, clock and random numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mizzen_sdk::api::Api;
use mizzen_sdk::clock::{self, Clock, Rng};
use mizzen_sdk::event::{ApiSink, Broadcaster, Limits, Note, Recorder};
use mizzen_sdk::informer::{Factory, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::timeline::Timeline;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::address::Cidr;
use mizzen_value::{Value, time};

use crate::certificates::CertificateSigner;
use crate::metadata_informers::MetadataInformers;
use crate::node_ipam::NodeMasks;
use crate::node_lifecycle::NodeMonitor;

/// The client for the controller of a name; the name is empty for the shared informers.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Signs a token with the service account key of the API server; none if that fails.
pub type SignToken = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;

/// The options of the controllers.
#[derive(Clone)]
pub struct Options {
    /// The API clients.
    pub clients: Clients,
    /// The wall clock.
    pub clock: Clock,
    /// The source of random numbers.
    pub rng: Rng,
    /// The controllers that run, by name; empty for all.
    pub controllers: Vec<String>,
    /// The number of workers for each queue of a controller, by name, where it is not the default.
    pub n_workers: HashMap<String, usize>,
    /// Signs certificates; without it none are signed.
    pub authority: Option<Arc<dyn CertificateSigner>>,
    /// The pod CIDRs, one for each family, such as `10.244.0.0/16`; without any, nodes get no
    /// podCIDR.
    pub pod_ranges: Vec<String>,
    /// The prefix lengths of podCIDRs.
    pub node_masks: NodeMasks,
    /// The service CIDRs, which are not allocated to nodes.
    pub service_ranges: Vec<Cidr>,
    /// The options of the node lifecycle controller.
    pub node_monitor: NodeMonitor,
    /// How many terminated pods are kept; 0 keeps all.
    pub terminated_pod_gc_threshold: usize,
    /// How often metrics of autoscalers are evaluated.
    pub autoscaler_sync_period: Duration,
    /// The longest validity of signed certificates.
    pub signing_duration: Duration,
    /// The addresses of simulated load balancers, one range for each family; without any, Services
    /// of type LoadBalancer get no address.
    pub load_balancer_ranges: Vec<Cidr>,
    /// The CA bundle of the API server as PEM. Without it, none is published.
    pub root_ca: Option<String>,
    /// Signs the tokens of service account token secrets. Without it, none are created.
    pub sign_token: Option<SignToken>,
    /// The shared informers; by default the controllers create their own.
    pub informers: Option<Factory>,
}

impl Options {
    /// All controllers with default options, on the system clock.
    pub fn new(clients: Clients) -> Options {
        Options {
            clients,
            clock: clock::wall_clock(),
            rng: clock::rng(),
            controllers: Vec::new(),
            n_workers: HashMap::new(),
            authority: None,
            pod_ranges: Vec::new(),
            node_masks: NodeMasks::default(),
            service_ranges: Vec::new(),
            node_monitor: NodeMonitor::default(),
            terminated_pod_gc_threshold: 12_500,
            autoscaler_sync_period: Duration::from_secs(15),
            signing_duration: Duration::from_secs(365 * 24 * 3600),
            load_balancer_ranges: Vec::new(),
            root_ca: None,
            sign_token: None,
            informers: None,
        }
    }
}

/// What a controller is given. Cheap to clone.
#[derive(Clone)]
pub struct ControllerContext {
    /// Reads and writes under the controller's own name.
    pub api: Api,
    /// The wall clock.
    pub clock: Clock,
    timeline: Arc<Timeline>,
    /// The source of random numbers.
    pub rng: Rng,
    /// The options of all controllers.
    pub options: Arc<Options>,
    informers: Factory,
    metadata_informers: MetadataInformers,
    broadcaster: Arc<Broadcaster>,
    recorder: Recorder,
}

impl ControllerContext {
    /// The context of a controller without a name. Must be called within a runtime.
    pub fn new(options: Options) -> ControllerContext {
        let client = (options.clients)("");
        let sinks: Vec<_> = vec![Box::new(ApiSink::core((options.clients)("events"))) as _];
        let broadcaster = Broadcaster::with(sinks, Limits::default(), options.clock.clone());
        ControllerContext {
            api: Api::new(client.clone()),
            clock: options.clock.clone(),
            timeline: Arc::new(Timeline::new(options.clock.clone())),
            rng: options.rng.clone(),
            metadata_informers: MetadataInformers::new(client.clone()),
            informers: options
                .informers
                .clone()
                .unwrap_or_else(|| Factory::new(client)),
            recorder: broadcaster.recorder("kube-controller-manager", ""),
            broadcaster: Arc::new(broadcaster),
            options: Arc::new(options),
        }
    }

    /// The context of the controller of this name, such as `deployment-controller`: client and
    /// events carry the name.
    pub fn named(&self, name: &str) -> ControllerContext {
        ControllerContext {
            api: Api::new((self.options.clients)(name)),
            recorder: self.broadcaster.recorder(name, ""),
            ..self.clone()
        }
    }

    /// The same context with another event source component.
    pub fn with_event_source(&self, name: &str) -> ControllerContext {
        ControllerContext {
            recorder: self.broadcaster.recorder(name, ""),
            ..self.clone()
        }
    }

    /// The shared informer of a resource.
    pub fn informer(&self, resource: &Resource) -> Informer<Object> {
        self.informers.objects(resource)
    }

    /// The shared informers.
    pub fn informers(&self) -> &Factory {
        &self.informers
    }

    /// The shared metadata informers.
    pub(crate) fn metadata_informers(&self) -> &MetadataInformers {
        &self.metadata_informers
    }

    /// A work queue.
    pub fn queue(&self, name: &str) -> Queue<Key> {
        Queue::new(name)
    }

    /// The wall clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The monotonic clock, for back-offs, grace periods and windows that this process measures.
    /// Steps of the wall clock do not change it, and it never appears in objects.
    pub fn monotonic_now(&self) -> Timestamp {
        self.timeline.now().monotonic
    }

    /// How long ago the wall clock showed a second, whatever steps it made since.
    pub fn elapsed_since(&self, second: i64) -> Duration {
        self.timeline
            .elapsed(Timestamp::from_second(second).unwrap_or(Timestamp::MIN))
    }

    /// The wall clock as RFC 3339 in whole seconds, as objects have it.
    pub fn now_text(&self) -> String {
        time::from_unix(self.now().as_second())
    }

    /// Records an event about an object.
    pub fn record_event(&self, resource: &Resource, object: &Object, note: Note) {
        self.recorder
            .record(&object_reference(resource, object), note);
    }
}

/// The involved object of an event.
pub(crate) fn object_reference(resource: &Resource, object: &Object) -> ObjectReference {
    let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    ObjectReference {
        api_version: Some(resource.api_version()),
        kind: Some(resource.kind.to_string()),
        name: text(object.name()),
        namespace: text(object.namespace()),
        resource_version: text(object.version()),
        uid: text(object.uid()),
        field_path: None,
    }
}
