//! Ingresses of v1beta1: a backend has its service name and port as fields of its own.

use mizzen_value::{Value, value};

use super::ingress::{self, IngressDialect};
use crate::Behaviour;

pub(super) const INGRESS: Behaviour = Behaviour {
    default: |ingress| {
        for path in paths(ingress.entry("spec")) {
            path.set_default("pathType", "ImplementationSpecific");
        }
    },
    validate: |ingress, old, context, violations| {
        ingress::validate_in(&V1BETA1, ingress, old, context, violations);
    },
    to_stored: |ingress| {
        convert(ingress, ("backend", "defaultBackend"), |backend| {
            // A port given as text is a name, even an empty one.
            let name = backend.remove("serviceName").unwrap_or_default();
            let port = backend.remove("servicePort").unwrap_or_default();
            let port = match port.as_str() {
                Some(name) => value!({"name": name}),
                None if port.int() == 0 && name.is_empty() => return,
                None => value!({"number": (port.int())}),
            };
            backend.set("service", value!({"name": (name.str()), "port": port}));
        })
    },
    from_stored: |ingress| {
        convert(ingress, ("defaultBackend", "backend"), |backend| {
            let Some(service) = backend
                .remove("service")
                .filter(|service| !service.is_null())
            else {
                return;
            };
            let port = &service["port"];
            backend.set("serviceName", service["name"].str());
            match port["name"].str() {
                "" => backend.set("servicePort", port["number"].int()),
                name => backend.set("servicePort", name),
            }
        })
    },
    ..ingress::INGRESS
};

const V1BETA1: IngressDialect = IngressDialect {
    default_backend: "backend",
    service_name: "serviceName",
    port_name: "servicePort",
    port_number: "servicePort",
    lenient: true,
};

/// Renames the backend for what no rule names, and turns all backends around.
fn convert(ingress: &mut Value, (from, to): (&str, &str), turn: fn(&mut Value)) {
    let Some(spec) = ingress.get_mut("spec") else {
        return;
    };
    if let Some(mut backend) = spec.remove(from) {
        turn(&mut backend);
        spec.set(to, backend);
    }
    paths(spec)
        .filter_map(|path| path.get_mut("backend"))
        .for_each(turn);
}

fn paths(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    let rules = spec.get_mut("rules").into_iter().flat_map(Value::list_mut);
    rules
        .filter_map(|rule| rule.at_mut("http.paths"))
        .flat_map(Value::list_mut)
}
