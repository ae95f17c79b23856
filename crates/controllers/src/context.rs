//! What every loop is given: a way to the API, shared caches, a recorder, and the seams of time and chance.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mizzen_sdk::api::Api;
use mizzen_sdk::event::{ApiSink, Broadcaster, Limits, Note, Recorder};
use mizzen_sdk::informer::{Factory, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::seam::{self, Chance, Clock};
use mizzen_sdk::timeline::Timeline;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::address::Block;
use mizzen_value::{Value, time};

use crate::census::Census;
use crate::certificates::Sign;
use crate::node_ipam::NodeMasks;
use crate::node_lifecycle::NodeMonitor;

/// The way to the API for the loop of a name; for the caches that all share, the name is empty.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Makes a token of claims, signed with the key by which the server knows its tokens; none if that cannot be done.
pub type SignToken = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;

/// How the loops are set up.
#[derive(Clone)]
pub struct Options {
    /// The ways to the API.
    pub clients: Clients,
    /// The time of day.
    pub clock: Clock,
    /// Where chance comes from.
    pub chance: Chance,
    /// Which loops run, by name; empty for all.
    pub loops: Vec<String>,
    /// How many workers the queues of a loop have, by its name, where it is not as many as usual.
    pub n_workers: HashMap<String, usize>,
    /// Who signs certificates; without anybody none are signed.
    pub authority: Option<Arc<dyn Sign>>,
    /// The addresses of pods, one range per family, such as `10.244.0.0/16`; without any, nodes get no blocks of them.
    pub pod_ranges: Vec<String>,
    /// How long the prefixes of nodes' blocks are.
    pub node_masks: NodeMasks,
    /// The addresses of services, which nodes do not get.
    pub service_ranges: Vec<Block>,
    /// How nodes are monitored.
    pub node_monitor: NodeMonitor,
    /// How many pods that have ended are kept; zero keeps all.
    pub terminated_pod_gc_threshold: usize,
    /// How often autoscalers look at their metrics.
    pub autoscaler_sync_period: Duration,
    /// For how long certificates are good at most.
    pub signing_duration: Duration,
    /// The addresses of simulated load balancers, one range per family; without any, Services of type LoadBalancer get none.
    pub load_balancer_ranges: Vec<Block>,
    /// The certificate, in PEM, by which the server is known. Without it none is published.
    pub root_ca: Option<String>,
    /// Signs the tokens that are kept in secrets. Without it there are none.
    pub sign_token: Option<SignToken>,
    /// What follows objects; the loops' own if nothing is said.
    pub informers: Option<Factory>,
}

impl Options {
    /// All loops, on the wall clock.
    pub fn new(clients: Clients) -> Options {
        Options {
            clients,
            clock: seam::wall_clock(),
            chance: seam::chance(),
            loops: Vec::new(),
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

/// What a loop is given. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Reads and writes under the loop's own name.
    pub api: Api,
    /// The time of day.
    pub clock: Clock,
    timeline: Arc<Timeline>,
    /// Where chance comes from.
    pub chance: Chance,
    /// How all loops are set up.
    pub options: Arc<Options>,
    informers: Factory,
    census: Census,
    broadcaster: Arc<Broadcaster>,
    recorder: Recorder,
}

impl Context {
    /// What is given to a loop that has no name yet. To be called within a runtime.
    pub fn new(options: Options) -> Context {
        let client = (options.clients)("");
        let sinks: Vec<_> = vec![Box::new(ApiSink::core((options.clients)("events"))) as _];
        let broadcaster = Broadcaster::with(sinks, Limits::default(), options.clock.clone());
        Context {
            api: Api::new(client.clone()),
            clock: options.clock.clone(),
            timeline: Arc::new(Timeline::new(options.clock.clone())),
            chance: options.chance.clone(),
            census: Census::new(client.clone()),
            informers: options
                .informers
                .clone()
                .unwrap_or_else(|| Factory::new(client)),
            recorder: broadcaster.recorder("kube-controller-manager", ""),
            broadcaster: Arc::new(broadcaster),
            options: Arc::new(options),
        }
    }

    /// The same for the loop of this name, such as `deployment-controller`: it writes and records under it.
    pub fn named(&self, name: &str) -> Context {
        Context {
            api: Api::new((self.options.clients)(name)),
            recorder: self.broadcaster.recorder(name, ""),
            ..self.clone()
        }
    }

    /// The same, but in events it goes by another name.
    pub fn recording_as(&self, name: &str) -> Context {
        Context {
            recorder: self.broadcaster.recorder(name, ""),
            ..self.clone()
        }
    }

    /// What is known of the objects of a resource; all loops share it.
    pub fn follow(&self, resource: &Resource) -> Informer<Object> {
        self.informers.objects(resource)
    }

    /// The informers that all loops share.
    pub fn informers(&self) -> &Factory {
        &self.informers
    }

    /// What there is of every kind; all loops share it.
    pub(crate) fn census(&self) -> &Census {
        &self.census
    }

    /// What is to be done next.
    pub fn queue(&self, name: &str) -> Queue<Key> {
        Queue::new(name)
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The time on the monotonic clock: for back-offs, grace periods and windows that this process measures. Steps of the wall
    /// clock do not change it, and objects never have it.
    pub fn monotonic_now(&self) -> Timestamp {
        self.timeline.now().monotonic
    }

    /// How long ago the wall clock showed a second, whatever steps it made since.
    pub fn elapsed_since(&self, second: i64) -> Duration {
        self.timeline
            .elapsed(Timestamp::from_second(second).unwrap_or(Timestamp::MIN))
    }

    /// The time of day as objects say it, in whole seconds.
    pub fn now_text(&self) -> String {
        time::from_unix(self.now().as_second())
    }

    /// Tells people something about an object.
    pub fn record(&self, resource: &Resource, object: &Object, note: Note) {
        self.recorder.record(&reference(resource, object), note);
    }
}

/// A reference to an object, as events have it.
pub(crate) fn reference(resource: &Resource, object: &Object) -> ObjectReference {
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
