//! A custom resource with thirty fields and five validation rules.
//!
//! Each run has an API group of its own, named like its namespace, so that concurrent runs do not collide.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::client::{ApiCall, ApiCallError};
use super::objects::{Collection, ObjectKind};
use super::session::Session;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How often to check whether the kind is served.
const POLL: Duration = Duration::from_millis(50);
/// How many times to check.
const N_POLLS: usize = 200;

/// Creates the CustomResourceDefinition and waits until the kind is served.
pub(crate) async fn create(session: &Session) -> Result<(), ApiCallError> {
    let group = group(&session.namespace);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema()}}},
            }],
        },
    });
    session
        .call(&ApiCall::post(DEFINITIONS, definition.to_string()))
        .await?;
    let list = ApiCall::get(format!(
        "{}?limit=1",
        Collection::new(ObjectKind::Widgets, &session.namespace).path
    ));
    for _ in 1..N_POLLS {
        match session.call(&list).await {
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                tokio::time::sleep(POLL).await
            }
            response => return response.map(drop),
        }
    }
    session.call(&list).await.map(drop)
}

/// Deletes the definition with all its objects.
pub(crate) fn cleanup_call(namespace: &str) -> ApiCall {
    ApiCall::delete(format!("{DEFINITIONS}/widgets.{}", group(namespace)))
}

/// The API group of a run.
pub(crate) fn group(namespace: &str) -> String {
    format!("{namespace}.mizzen.example")
}

/// Strings and lists have bounds, because Kubernetes estimates the cost of rules.
fn schema() -> Value {
    let text = || json!({"type": "string", "maxLength": 128});
    let number = || json!({"type": "integer", "minimum": 0});
    let amount = || json!({"type": "object", "properties": {"request": text(), "limit": text()}});
    json!({
        "type": "object",
        "required": ["image", "replicas"],
        "properties": {
            "image": {"type": "string", "maxLength": 128, "x-kubernetes-validations": [
                {"rule": "self.matches('^[a-z0-9./-]+:[a-z0-9.]+$')", "message": "must have a tag"},
            ]},
            "replicas": number(), "minReplicas": number(), "maxReplicas": number(),
            "paused": {"type": "boolean", "default": false},
            "strategy": {"type": "string", "enum": ["Rolling", "Recreate"], "default": "Rolling"},
            "owner": text(), "region": text(), "zone": text(),
            "ports": {
                "type": "array", "maxItems": 8,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name", "number"], "properties": {
                    "name": text(), "number": number(), "protocol": text(),
                }},
                "x-kubernetes-validations": [{
                    "rule": "self.all(one, self.exists_one(other, one.number == other.number))",
                    "message": "numbers must differ",
                }],
            },
            "resources": {
                "type": "object",
                "properties": {"cpu": amount(), "memory": amount()},
                "x-kubernetes-validations": [{
                    "rule": "quantity(self.memory.request).compareTo(quantity(self.memory.limit)) <= 0",
                    "message": "no more may be asked for than is allowed",
                }],
            },
            "tls": {"type": "object", "properties": {
                "enabled": {"type": "boolean"}, "secretName": text(), "minVersion": text(),
            }},
            "probe": {"type": "object", "properties": {
                "path": text(), "port": number(), "periodSeconds": number(), "timeoutSeconds": number(),
            }},
            "labels": {"type": "object", "additionalProperties": text(), "maxProperties": 16},
        },
        "x-kubernetes-validations": [
            {"rule": "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas"},
            {
                "rule": "!has(self.tls) || !self.tls.enabled || size(self.tls.secretName) > 0",
                "messageExpression": "'a secret is needed by ' + self.owner",
            },
        ],
    })
}

/// An object of the kind, without a name.
pub(super) fn widget(namespace: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1", group(namespace)),
        "kind": "Widget",
        "metadata": {"annotations": {"turn": "00000000"}},
        "spec": {
            "image": "registry.example/shop/web:v2.14.3",
            "replicas": 3, "minReplicas": 1, "maxReplicas": 10,
            "owner": "team-shop", "region": "eu-north-1", "zone": "eu-north-1b",
            "ports": [
                {"name": "http", "number": 8080, "protocol": "TCP"},
                {"name": "grpc", "number": 9090, "protocol": "TCP"},
                {"name": "metrics", "number": 9102, "protocol": "TCP"},
            ],
            "resources": {
                "cpu": {"request": "250m", "limit": "1"},
                "memory": {"request": "256Mi", "limit": "512Mi"},
            },
            "tls": {"enabled": true, "secretName": "web-tls", "minVersion": "1.3"},
            "probe": {"path": "/ready", "port": 8080, "periodSeconds": 5, "timeoutSeconds": 1},
            "labels": {"tier": "front", "part-of": "shop"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(schema: &Value, n_fields: &mut usize, n_rules: &mut usize) {
        *n_rules += schema["x-kubernetes-validations"]
            .as_array()
            .map_or(0, Vec::len);
        for below in schema["properties"]
            .as_object()
            .into_iter()
            .flat_map(|properties| properties.values())
        {
            *n_fields += 1;
            count(below, n_fields, n_rules);
        }
        if schema["items"].is_object() {
            count(&schema["items"], n_fields, n_rules);
        }
    }

    #[test]
    fn a_widget_has_thirty_fields_and_five_rules() {
        let (mut n_fields, mut n_rules) = (0, 0);
        count(&schema(), &mut n_fields, &mut n_rules);
        assert_eq!((n_fields, n_rules), (30, 5));
    }
}
