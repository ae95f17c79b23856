//! `componentstatuses`: how the control plane's parts are. Nothing of it is stored.
//!
//! Kubernetes: an API server looks for scheduler and controller manager on its own machine, at ports that are
//! theirs by custom (registry/core/componentstatus). Ours never listen there, so nobody dials: the answer is what
//! dialling would give.

use mizzen_object::{Details, GroupResource, Status, Value, json, schema, value};
use mizzen_registry::{List, Object, Revision, Selection};

use super::Call;
use crate::answer::{self, Answer};
use crate::options;

/// The parts that are looked for, and where.
const PARTS: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];
/// The part that is inside: the store.
const STORE: &str = "etcd-0";

pub(crate) fn get(call: &Call) -> Result<Answer, Status> {
    let name = call.path.name.as_str();
    if name != STORE && !PARTS.iter().any(|part| part.0 == name) {
        // Kubernetes: this refusal names the resource in the singular.
        let resource = GroupResource {
            group: "".into(),
            resource: "componentstatus".into(),
        };
        return Err(Status::not_found(&resource, name));
    }
    call.object(&component(call, name), 200)
}

pub(crate) fn list(call: &Call) -> Result<Answer, Status> {
    call.check_include()?;
    let options = options::list_options(call.resource.kind(), "", &call.request.query)?;
    let mut items = Vec::new();
    for name in PARTS.map(|part| part.0).into_iter().chain([STORE]) {
        if selects(&options.selection, name) {
            items.push(component(call, name));
        }
    }
    let (version, token) = (Revision(0), String::new());
    let list = List {
        items,
        version,
        token,
        remaining: None,
        superseded: None,
    };
    let include = call.request.query.text("includeObject");
    let now = call.server.registry.now();
    Ok(answer::list(
        &call.server.types,
        call.resource,
        &list,
        call.accept,
        include,
        now,
    ))
}

/// 405: nobody tells when a component changes.
pub(crate) fn no_watch() -> Status {
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

/// Components have a name and no labels.
fn selects(selection: &Selection, name: &str) -> bool {
    let field = |field: &str| if field == "metadata.name" { name } else { "" };
    selection.labels.matches(|_| None) && selection.fields.matches(field)
}

fn component(call: &Call, name: &str) -> Object {
    let (status, message) = match PARTS.iter().find(|part| part.0 == name) {
        Some((_, port)) => ("False", unreachable_at(*port)),
        None => ("True", "ok".to_string()),
    };
    let kind = call.resource.kind();
    let mut component =
        value!({ "kind": (&kind.gvk.kind), "apiVersion": "v1", "metadata": { "name": name } });
    let condition: Value = value!({ "type": "Healthy", "status": status, "message": message });
    component.set("conditions", vec![condition]);
    schema::canonical(&kind.root, &mut component);
    Object::unstored(json::to_string(&component).into())
}

fn unreachable_at(port: u16) -> String {
    let address = format!("127.0.0.1:{port}");
    format!("Get \"https://{address}/healthz\": dial tcp {address}: connect: connection refused")
}
