//! The environment variables of Services, as a kubelet makes them.
//!
//! Kubernetes: those of `default/kubernetes` always, and those of the pod's namespace unless
//! `enableServiceLinks` is false (kubelet_pods.go, `getServiceEnvVarMap`). Only Services with a
//! cluster IP count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_value::{Str, Value};
use parking_lot::Mutex;

use crate::pod::inputs::{Inputs, ServiceVariables};

/// The Service whose variables every container gets.
const MASTER: (&str, &str) = ("default", "kubernetes");

/// Inputs by namespace and `enableServiceLinks`.
type KnownInputs = HashMap<(Str, bool), Arc<Inputs>>;

/// The variables of Services, cached.
pub(crate) struct ServiceLinks {
    services: Informer<Object>,
    /// The inputs of each namespace, until a Service changes.
    known: Arc<Mutex<KnownInputs>>,
}

impl ServiceLinks {
    /// The variables of the Services of an informer.
    pub(crate) fn new(services: Informer<Object>) -> ServiceLinks {
        let known: Arc<Mutex<HashMap<_, _>>> = Arc::default();
        let cache = known.clone();
        services.add_handler(move |_: Event<Object>| cache.lock().clear());
        ServiceLinks { services, known }
    }

    pub(crate) fn informer(&self) -> &Informer<Object> {
        &self.services
    }

    /// The inputs that all containers of a pod share.
    pub(crate) fn inputs(&self, pod: &Value) -> Arc<Inputs> {
        let namespace = pod["metadata"]["namespace"].str();
        let is_linked = pod["spec"]["enableServiceLinks"].as_bool().unwrap_or(true);
        let mut known = self.known.lock();
        let inputs = known
            .entry((namespace.into(), is_linked))
            .or_insert_with(|| {
                Arc::new(Inputs {
                    services: self.variables(namespace, is_linked),
                    ..Inputs::default()
                })
            });
        inputs.clone()
    }

    fn variables(&self, namespace: &str, is_linked: bool) -> ServiceVariables {
        let mut services = BTreeMap::new();
        for entry in self.services.store().list() {
            let key = entry.key();
            let is_master = (key.namespace(), key.name()) == MASTER;
            if !(is_master || is_linked && key.namespace() == namespace) {
                continue;
            }
            let Ok(service) = entry.object() else {
                continue;
            };
            if matches!(service["spec"]["clusterIP"].str(), "" | "None") {
                continue;
            }
            // Kubernetes: a Service of the namespace precedes the one of that name in `default`.
            match is_master {
                true => drop(services.entry(service.name().to_owned()).or_insert(service)),
                false => drop(services.insert(service.name().to_owned(), service)),
            }
        }
        services
            .values()
            .flat_map(|service| variables(service))
            .collect()
    }
}

/// Kubernetes: pkg/kubelet/envvars.
fn variables(service: &Object) -> Vec<(Str, Str)> {
    let address = service["spec"]["clusterIP"].str();
    let (upper, ports) = (
        |text: &str| text.replace('-', "_").to_uppercase(),
        service["spec"]["ports"].list(),
    );
    let prefix = upper(service.name());
    let mut variables = vec![(format!("{prefix}_SERVICE_HOST"), address.to_owned())];
    for (at, port) in ports.iter().enumerate() {
        let (number, protocol) = (port["port"].int(), port["protocol"].str());
        let protocol = if protocol.is_empty() { "TCP" } else { protocol };
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.into()
        };
        let url = format!("{}://{host}:{number}", protocol.to_lowercase());
        if at == 0 {
            variables.push((format!("{prefix}_SERVICE_PORT"), number.to_string()));
            variables.push((format!("{prefix}_PORT"), url.clone()));
        }
        if !port["name"].is_empty() {
            variables.push((
                format!("{prefix}_SERVICE_PORT_{}", upper(port["name"].str())),
                number.to_string(),
            ));
        }
        let prefix = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        variables.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
        variables.push((format!("{prefix}_PORT"), number.to_string()));
        variables.push((format!("{prefix}_ADDR"), address.into()));
        variables.push((prefix, url));
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_variables_of_a_kubelet() {
        let service = mizzen_value::value!({
            "metadata": { "name": "my-web", "namespace": "default" },
            "spec": { "clusterIP": "10.0.0.1", "ports": [{ "name": "http-s", "port": 443, "protocol": "TCP" }] },
        });
        let mut said: Vec<String> = variables(&Object(service))
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        said.sort_unstable();
        let expected = [
            "MY_WEB_PORT=tcp://10.0.0.1:443",
            "MY_WEB_PORT_443_TCP=tcp://10.0.0.1:443",
            "MY_WEB_PORT_443_TCP_ADDR=10.0.0.1",
            "MY_WEB_PORT_443_TCP_PORT=443",
            "MY_WEB_PORT_443_TCP_PROTO=tcp",
            "MY_WEB_SERVICE_HOST=10.0.0.1",
            "MY_WEB_SERVICE_PORT=443",
            "MY_WEB_SERVICE_PORT_HTTP_S=443",
        ];
        assert_eq!(said, expected);
    }
}
