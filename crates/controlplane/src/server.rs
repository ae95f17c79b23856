//! Composes the Kubernetes API server: the generic server, the built-in kinds, and what is registered here for them.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::clock::{SystemRandom, WallClock};
use mizzen_apiserver::extend::BuiltInKinds;
use mizzen_apiserver::server::ServerParts;
use mizzen_apiserver::{ClientIdentity, Server};
use mizzen_kinds as kinds;
use mizzen_object::Hooks;
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{Registry, Store};
use mizzen_value::Value;
use mizzen_value::address::Cidr;

use crate::admission::{
    Admission, LimitRangeLookups, Plugins, RESOURCE_QUOTA, ResourceQuota, SystemPriorityClasses,
};
use crate::legacy::LegacyHints;
use crate::node_authorizer::NodeAuthorizer;
use crate::runtime_config::{self, ApiSetting};
use crate::service::{
    self, Leaks, PendingAllocations, PortRepairMetrics, RepairEvents, ServiceAllocation,
};
use crate::subresources::{self, ControlPlaneComponents};

/// The addresses of a node that are dialled, the best first. Kubernetes: upstream begins with the host's name, and
/// installers pass these with `--kubelet-preferred-address-types`, because the name often does not resolve.
const KUBELET_ADDRESS_TYPES: [&str; 5] = [
    "InternalIP",
    "InternalDNS",
    "ExternalIP",
    "ExternalDNS",
    "Hostname",
];

/// How a Kubernetes API server is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The options of the generic API server. Its admission plug-ins and node authorizer are replaced by those of this crate.
    pub server: mizzen_apiserver::Options,
    /// Serve versions that Kubernetes has removed, too.
    pub legacy_apis: bool,
    /// Which built-in API versions are served; [`check_runtime_config`](crate::check_runtime_config) checks them.
    pub runtime_config: Vec<ApiSetting>,
    /// How long events are retained, in whole seconds; zero retains them.
    pub event_ttl: Duration,
    /// The admission plug-ins that are on.
    pub plugins: Plugins,
    /// The configuration of the plug-ins.
    pub admission: Admission,
    /// The types of nodes' addresses at which kubelets are called, the preferred one first.
    pub kubelet_address_types: Vec<String>,
    /// The certificate with which kubelets are called.
    pub kubelet_client: Option<ClientIdentity>,
    /// The authorities, as PEM, that must have signed the serving certificates of kubelets; they are not verified without.
    pub kubelet_authority: Option<String>,
    /// The ranges of services' addresses: one of each family that services can have, their usual one first.
    pub service_ranges: Vec<Cidr>,
    /// The node ports of services.
    pub service_node_ports: RangeInclusive<u16>,
    /// The components of the control plane that run beside the server, for `componentstatuses`.
    pub components: ControlPlaneComponents,
}

impl Default for Options {
    fn default() -> Options {
        mizzen_apiserver::Options::default().into()
    }
}

impl From<mizzen_apiserver::Options> for Options {
    fn from(server: mizzen_apiserver::Options) -> Options {
        Options {
            server,
            legacy_apis: false,
            runtime_config: Vec::new(),
            event_ttl: Duration::from_secs(60 * 60),
            plugins: Plugins::alone(),
            admission: Admission::default(),
            kubelet_address_types: KUBELET_ADDRESS_TYPES.map(String::from).to_vec(),
            kubelet_client: None,
            kubelet_authority: None,
            service_ranges: Cidr::parse_sloppy("10.0.0.0/24").into_iter().collect(),
            service_node_ports: 30_000..=32_767,
            components: ControlPlaneComponents::default(),
        }
    }
}

/// What plug-ins and subresources of the Kubernetes API server share.
pub(crate) struct ControlPlane {
    pub admission: Admission,
    pub limit_range_lookups: LimitRangeLookups,
    /// Calls kubelets.
    pub kubelets: OutgoingClient,
    pub kubelet_address_types: Vec<String>,
    pub kubelet_authority: Option<String>,
    pub service_ranges: Vec<Cidr>,
    pub service_node_ports: RangeInclusive<u16>,
    /// Node ports without Service.
    pub node_port_leaks: Leaks,
    /// What writes of services under way have chosen.
    pub allocations: PendingAllocations,
    /// What repairs have found.
    pub repair_events: RepairEvents,
    pub port_repair_metrics: Arc<PortRepairMetrics>,
    pub components: ControlPlaneComponents,
}

impl ControlPlane {
    /// That of a server that this crate has composed.
    pub(crate) fn of(server: &ServerParts) -> &ControlPlane {
        server.state().expect("this crate composed the server")
    }
}

/// A server for all built-in kinds. It is to be [started](Server::start).
pub fn server(registry: Registry, options: impl Into<Options>) -> Server {
    let options: Options = options.into();
    let built_in = built_in_kinds(&options);
    let mut generic = options.server;
    generic.admission_plugins = options.plugins.iter().collect();
    generic.node_authorizer = Some(NodeAuthorizer::authorizer);
    let control_plane = ControlPlane {
        admission: options.admission,
        limit_range_lookups: LimitRangeLookups::default(),
        kubelets: OutgoingClient::plain(&registry, options.kubelet_client),
        kubelet_address_types: options.kubelet_address_types,
        kubelet_authority: options.kubelet_authority,
        service_ranges: options.service_ranges,
        service_node_ports: options.service_node_ports,
        node_port_leaks: Leaks::default(),
        allocations: PendingAllocations::default(),
        repair_events: RepairEvents::default(),
        port_repair_metrics: Arc::default(),
        components: options.components,
    };
    generic.metrics.register(&control_plane.port_repair_metrics);
    let mut builder = Server::builder(registry)
        .options(|options| *options = generic)
        .built_in(built_in)
        .state(control_plane);
    if options.plugins.has(RESOURCE_QUOTA) {
        builder = builder.write_strategy(ResourceQuota);
    }
    builder = builder
        .write_strategy(ServiceAllocation)
        .write_strategy(SystemPriorityClasses);
    if !options.legacy_apis {
        builder = builder.hints(LegacyHints);
    }
    let built = subresources::register(builder).build();
    built.expect("the built-in kinds have everything that is registered for them")
}

/// The kinds that `options` do not disable.
fn built_in_kinds(options: &Options) -> BuiltInKinds {
    let mut built_in = match options.legacy_apis {
        true => kinds::legacy_catalog(),
        false => kinds::catalog(),
    };
    runtime_config::disable(&mut built_in, &options.runtime_config);
    let event_ttl = u32::try_from(options.event_ttl.as_secs()).unwrap_or(u32::MAX);
    for kind in built_in
        .kinds
        .iter_mut()
        .filter(|kind| kind.rules.ttl.is_some_and(|ttl| ttl != event_ttl))
    {
        Arc::make_mut(&mut kind.data).rules.ttl = Some(event_ttl);
    }
    BuiltInKinds {
        kinds: built_in.kinds,
        schemas: built_in.schemas,
        subresource_hooks: |gvk, name| {
            Some(Arc::new(kinds::subresource(gvk, name)?) as Arc<dyn Hooks>)
        },
        was_served: kinds::was_served,
    }
}

/// A server that keeps everything in memory, with the namespace `default`: for tests and examples.
pub async fn in_memory() -> Server {
    let store = Store::in_memory(Default::default());
    let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
    let server = server(registry, Options::default());
    server.start().await;
    let mut namespace = Value::object();
    namespace.entry("metadata").set("name", "default");
    server
        .ask("POST", "/api/v1/namespaces", Some(&namespace))
        .await;
    server
}

/// Brings IPAddresses, and the node ports of a shared store, in line with services: what was under way when a server stopped
/// may not have ended. Writes Events about what was wrong, and about what users have to mend.
pub async fn repair(server: &Server) -> Result<(), String> {
    service::repair_addresses(server).await;
    let repaired = service::repair_ports(server).await;
    repaired.map_err(|status| status.message)
}

/// The components of the control plane that run beside the server.
pub fn components(server: &Server) -> &ControlPlaneComponents {
    &ControlPlane::of(server.parts()).components
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_server_is_freed() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(async {
            let server = in_memory().await;
            let (code, _) = server.ask("GET", "/api/v1/namespaces", None).await;
            assert_eq!(code, 200);
            Arc::downgrade(server.parts())
        });
        drop(runtime);
        assert_eq!(server.strong_count(), 0);
    }
}
