//! Resolves the Service of a webhook or an APIService to an address.
//!
//! Upstream dials the cluster IP, or with `--enable-aggregator-routing` an endpoint. A cluster IP works only where a data
//! plane runs beside the API server, which a control plane alone does not have. So a ready endpoint is used if there is one,
//! and the cluster IP otherwise. Both lead to the same servers.
//!
//! Endpoints on simulated nodes are never dialled: their addresses are invented, and may belong to another machine.

use std::net::IpAddr;

use mizzen_object::select::{LabelSelector, Requirement, SelectorOperator};
use mizzen_object::{GroupResource, Status};
use mizzen_registry::{Key, ListOptions, Registry, Resource, Selection};
use mizzen_value::Value;

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ServiceReference {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The port of the Service, not of its endpoints.
    pub port: u16,
}

impl ServiceReference {
    /// Parses `{namespace, name, port}`; the default port is 443.
    pub fn parse(reference: &Value) -> ServiceReference {
        let port = u16::try_from(reference["port"].int()).unwrap_or_default();
        ServiceReference {
            namespace: reference["namespace"].str().into(),
            name: reference["name"].str().into(),
            port: if port == 0 { 443 } else { port },
        }
    }

    /// The name that its certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Resolves Services.
pub struct ServiceResolver {
    registry: Registry,
    services: Option<Resource>,
    slices: Option<Resource>,
    nodes: Option<Resource>,
    /// The address of this server.
    own: String,
}

impl ServiceResolver {
    /// Resolves the Services of a server at the address `own`. `resource` finds a resource by group, version and
    /// plural name.
    pub fn new(
        registry: &Registry,
        resource: impl Fn(&str, &str, &str) -> Option<Resource>,
        own: &str,
    ) -> ServiceResolver {
        ServiceResolver {
            registry: registry.clone(),
            services: resource("", "v1", "services"),
            slices: resource("discovery.k8s.io", "v1", "endpointslices"),
            nodes: resource("", "v1", "nodes"),
            own: own.into(),
        }
    }

    /// A resolver without Services.
    pub(crate) fn empty(registry: &Registry) -> ServiceResolver {
        ServiceResolver {
            registry: registry.clone(),
            services: None,
            slices: None,
            nodes: None,
            own: String::new(),
        }
    }

    /// The Service object.
    pub fn find(&self, service: &ServiceReference) -> Result<Value, Status> {
        let key = Key::new(&service.namespace, &service.name);
        let found = self
            .services
            .as_ref()
            .and_then(|services| self.registry.get(services, &key, "").ok());
        let what = GroupResource {
            group: "".into(),
            resource: "service".into(),
        };
        found
            .map(|found| found.value())
            .ok_or_else(|| Status::not_found(&what, &service.name))
    }

    /// The `host:port` to dial.
    pub fn resolve(&self, service: &ServiceReference) -> Result<String, Status> {
        let ServiceReference {
            namespace,
            name,
            port,
        } = service;
        // Kubernetes: the API server dials itself directly.
        if (namespace.as_str(), name.as_str(), *port) == ("default", "kubernetes", 443) {
            return Ok(self.own.clone());
        }
        let object = self.find(service)?;
        let spec = &object["spec"];
        if spec["type"].str() == "ExternalName" {
            return Ok(format!("{}:{port}", spec["externalName"].str()));
        }
        let service_port = spec["ports"]
            .list()
            .iter()
            .find(|known| known["port"].int() == i64::from(*port));
        let Some(service_port) = service_port else {
            return Err(unavailable(format!(
                "no service port {port} found for service \"{name}\""
            )));
        };
        if let Some(address) = self.endpoint(service, service_port["name"].str())? {
            return Ok(address);
        }
        // A cluster IP leads to pods, and simulated nodes run none.
        if !spec["selector"].is_empty() && self.has_only_simulated_nodes() {
            return Err(unavailable(format!(
                "no endpoints available for service \"{name}\""
            )));
        }
        match spec["clusterIP"].str() {
            "None" | "" => Err(Status::unknown(
                "cannot route to service with ClusterIP \"None\"",
            )),
            address => Ok(join(address, i64::from(*port))),
        }
    }

    /// The EndpointSlices of a Service.
    pub fn slices(&self, service: &ServiceReference) -> Vec<Value> {
        let Some(resource) = &self.slices else {
            return Vec::new();
        };
        let operator = SelectorOperator::In(vec![service.name.as_str().into()]);
        let labels = LabelSelector {
            requirements: vec![Requirement {
                key: "kubernetes.io/service-name".into(),
                operator,
            }],
        };
        let namespace = service.namespace.as_str().into();
        let selection = Selection {
            namespace,
            labels,
            ..Selection::default()
        };
        let list = self.registry.list(
            resource,
            &ListOptions {
                selection,
                ..ListOptions::default()
            },
        );
        list.map(|list| list.items.iter().map(|slice| slice.value()).collect())
            .unwrap_or_default()
    }

    /// A random ready endpoint on a real node. Fails if all ready ones are simulated.
    fn endpoint(
        &self,
        service: &ServiceReference,
        port_name: &str,
    ) -> Result<Option<String>, Status> {
        let slices = self.slices(service);
        let ready = slices
            .iter()
            .flat_map(|slice| ReadyEndpoint::in_slice(slice, port_name));
        let (simulated, mut ready): (Vec<ReadyEndpoint>, Vec<ReadyEndpoint>) = ready
            .partition(|endpoint| !endpoint.node.is_empty() && self.is_simulated(&endpoint.node));
        if ready.is_empty() {
            return match simulated.first() {
                None => Ok(None),
                Some(ReadyEndpoint { address, node }) => {
                    let ServiceReference {
                        namespace, name, ..
                    } = service;
                    let text = format!(
                        "service \"{namespace}/{name}\" has simulated endpoints only: {address} is a pod on node \"{node}\", \
                         which runs no containers"
                    );
                    Err(unavailable(text))
                }
            };
        }
        let mut bytes = [0; 2];
        self.registry.random().fill(&mut bytes);
        let at = usize::from(u16::from_le_bytes(bytes)) % ready.len();
        Ok(Some(ready.swap_remove(at).address))
    }

    /// Whether a node has the simulated runtime.
    pub fn is_simulated(&self, node: &str) -> bool {
        let found = self
            .nodes
            .as_ref()
            .and_then(|nodes| self.registry.get(nodes, &Key::new("", node), "").ok());
        found.is_some_and(|node| has_simulated_runtime(&node.value()))
    }

    fn has_only_simulated_nodes(&self) -> bool {
        let Some(nodes) = &self.nodes else {
            return false;
        };
        let nodes = self
            .registry
            .list(nodes, &ListOptions::default())
            .map(|list| list.items)
            .unwrap_or_default();
        !nodes.is_empty()
            && nodes
                .iter()
                .all(|node| has_simulated_runtime(&node.value()))
    }
}

fn has_simulated_runtime(node: &Value) -> bool {
    node["status"]["nodeInfo"]["containerRuntimeVersion"]
        .str()
        .starts_with("simulated://")
}

/// A ready endpoint: its `host:port`, and its node if that is known.
struct ReadyEndpoint {
    address: String,
    node: String,
}

impl ReadyEndpoint {
    /// The ready endpoints of a slice.
    fn in_slice(slice: &Value, port_name: &str) -> Vec<ReadyEndpoint> {
        let port = slice["ports"]
            .list()
            .iter()
            .find(|port| port["name"].str() == port_name);
        let Some(port) = port.map(|port| port["port"].int()).filter(|port| *port > 0) else {
            return Vec::new();
        };
        let endpoints = slice["endpoints"].list().iter();
        let ready =
            endpoints.filter(|endpoint| endpoint["conditions"]["ready"].as_bool() != Some(false));
        let found = ready.filter_map(|endpoint| {
            let address = join(endpoint["addresses"].list().first()?.str(), port);
            Some(ReadyEndpoint {
                address,
                node: endpoint["nodeName"].str().into(),
            })
        });
        found.collect()
    }
}

fn join(address: &str, port: i64) -> String {
    match address.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{address}:{port}"),
    }
}

fn unavailable(message: String) -> Status {
    Status::failure(503, "ServiceUnavailable", message)
}
