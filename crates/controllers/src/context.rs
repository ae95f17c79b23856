//! The controller context: what controllers share beyond the context of the SDK.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::clock::{self, Clock, Rng};
use mizzen_sdk::controller::{Clients, Context, ContextOptions};
use mizzen_sdk::informer::Factory;
use mizzen_value::Value;
use mizzen_value::address::Cidr;

use crate::certificates::CertificateSigner;
use crate::metadata_informers::MetadataInformers;
use crate::node_ipam::NodeMasks;
use crate::node_lifecycle::NodeMonitor;

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

/// What a controller is given: the context of the SDK, and the options of all controllers. Cheap to
/// clone.
#[derive(Clone)]
pub struct ControllerContext {
    context: Context,
    /// The options of all controllers.
    pub options: Arc<Options>,
    metadata_informers: MetadataInformers,
}

impl Deref for ControllerContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl ControllerContext {
    /// The context of a controller without a name. Must be called within a runtime.
    pub fn new(options: Options) -> ControllerContext {
        let client = (options.clients)("");
        let context = Context::with(ContextOptions {
            clients: options.clients.clone(),
            informers: options
                .informers
                .clone()
                .unwrap_or_else(|| Factory::new(client.clone())),
            clock: options.clock.clone(),
            rng: options.rng.clone(),
        });
        ControllerContext {
            context: context.with_event_source("kube-controller-manager"),
            metadata_informers: MetadataInformers::new(client),
            options: Arc::new(options),
        }
    }

    /// The context of the controller of this name, such as `deployment-controller`: client and
    /// events carry the name.
    pub fn named(&self, name: &str) -> ControllerContext {
        ControllerContext {
            context: self.context.named(name),
            ..self.clone()
        }
    }

    /// The same context with another event source component.
    pub fn with_event_source(&self, name: &str) -> ControllerContext {
        ControllerContext {
            context: self.context.with_event_source(name),
            ..self.clone()
        }
    }

    /// The shared metadata informers.
    pub(crate) fn metadata_informers(&self) -> &MetadataInformers {
        &self.metadata_informers
    }
}
