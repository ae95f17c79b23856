//! `componentstatuses`: the health of the control plane. It is computed, not stored.
//!
//! Kubernetes: the API server probes scheduler and controller manager at their default ports on localhost
//! (registry/core/componentstatus). The health check of a component in this process is called directly instead.

use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::HealthCheck;
use mizzen_apiserver::options;
use mizzen_apiserver::response::Response;
use mizzen_apiserver::verbs::ResourceCall;
use mizzen_object::{Details, GroupResource, Status, schema};
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{Health, Object, ObjectList, Revision};
use mizzen_transport::{CallLimit, Trust};
use mizzen_value::{Value, json, value};
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::ControlPlane;

/// The probed components and their ports.
const COMPONENTS: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];
/// The name of the store.
const STORE: &str = "etcd-0";
/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest response to a probe.
const MAX_RESPONSE: usize = 10 * 1024;

/// The control plane components in the process of the server, by name. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ControlPlaneComponents(Arc<RwLock<Vec<Arc<dyn HealthCheck>>>>);

impl ControlPlaneComponents {
    /// Adds a component, whose check has its name: `scheduler` or `controller-manager`.
    pub fn add(&self, component: Arc<dyn HealthCheck>) {
        self.0.write().push(component);
    }

    fn find(&self, name: &str) -> Option<Arc<dyn HealthCheck>> {
        let components = self.0.read();
        components
            .iter()
            .find(|known| known.name() == name)
            .cloned()
    }
}

/// Answers for the resource; nothing of it can be watched.
pub(super) async fn serve(call: &ResourceCall<'_>) -> Result<Response, Status> {
    match call.request.info.verb() {
        "list" => list(call).await,
        "watch" => Err(no_watch()),
        _ => get(call).await,
    }
}

async fn get(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let name = call.path.name.as_str();
    if name != STORE && !COMPONENTS.iter().any(|part| part.0 == name) {
        // Kubernetes: this error has the singular name of the resource.
        let resource = GroupResource {
            group: "".into(),
            resource: "componentstatus".into(),
        };
        return Err(Status::not_found(&resource, name));
    }
    call.object(&component(call, name).await, 200)
}

async fn list(call: &ResourceCall<'_>) -> Result<Response, Status> {
    call.check_include()?;
    let options = options::list_options(call.resource.kind(), "", &call.request.query)?;
    let mut items = Vec::new();
    for name in COMPONENTS.map(|part| part.0).into_iter().chain([STORE]) {
        // Components have a name and no labels.
        let field = |field: &str| if field == "metadata.name" { name } else { "" };
        let selection = &options.selection;
        if selection.labels.matches(|_| None) && selection.fields.matches(field) {
            items.push(component(call, name).await);
        }
    }
    let (version, token) = (Revision(0), String::new());
    let list = ObjectList {
        items,
        version,
        token,
        remaining: None,
        superseded: None,
    };
    Ok(call.renderer().list(&list))
}

/// 405: component statuses cannot be watched.
fn no_watch() -> Status {
    let message = "watch is not supported on resources of kind \"componentstatuses\"";
    let details = Details {
        kind: "componentstatuses".into(),
        ..Details::default()
    };
    Status {
        details: Some(Box::new(details)),
        ..Status::method_not_allowed(message)
    }
}

async fn component(call: &ResourceCall<'_>, name: &str) -> Object {
    let server = call.server;
    let health = match COMPONENTS.iter().find(|part| part.0 == name) {
        Some((name, port)) => match ControlPlane::of(server).components.find(name) {
            Some(component) => component.check().await,
            // Kubernetes: the certificate of the component is not verified.
            None => {
                let url = format!("https://127.0.0.1:{port}/healthz");
                let limit = CallLimit {
                    until: Instant::now() + PROBE_TIMEOUT,
                    bytes: MAX_RESPONSE,
                };
                let client = OutgoingClient::plain(&server.registry, None);
                let result = client.get(&url, &Trust::Anyone, limit).await;
                result.map(drop).map_err(|error| error.to_string())
            }
        },
        None => match server.registry.store().health() {
            // Kubernetes: etcd without space is not healthy (etcd's /health, NOSPACE).
            Health::Failed(problem) | Health::Full(problem) => Err(problem.to_string()),
            _ => Ok(()),
        },
    };
    let (status, message) = match health {
        Ok(()) => ("True", "ok".to_owned()),
        Err(problem) => ("False", problem),
    };
    let kind = call.resource.kind();
    let mut component =
        value!({ "kind": (&kind.gvk.kind), "apiVersion": "v1", "metadata": { "name": name } });
    let condition: Value = value!({ "type": "Healthy", "status": status, "message": message });
    component.set("conditions", vec![condition]);
    schema::canonical(&kind.root, &mut component);
    Object::unstored(json::to_string(&component).into())
}
