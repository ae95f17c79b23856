//! The priority levels and flow schemas that every cluster has, read from `data/flow.yaml`.

use mizzen_object::{Value, json, value, yaml};

use super::Wanted;

const DATA: &str = include_str!("../../data/flow.yaml");
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// All of them, without status.
pub fn objects() -> Vec<Wanted> {
    let data = yaml::read(DATA.as_bytes()).map(|document| document.value).unwrap_or_default();
    let levels = made(&data, "prioritylevelconfigurations", "PriorityLevelConfiguration");
    let schemas = made(&data, "flowschemas", "FlowSchema");
    levels.chain(schemas).collect()
}

fn made<'a>(data: &'a Value, plural: &'a str, kind: &'a str) -> impl Iterator<Item = Wanted> + use<'a> {
    data[plural].entries().map(move |(name, spec)| {
        let mut object = value!({
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": { "name": name, "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } }
        });
        object.set("spec", spec.clone());
        Wanted { path: format!("/apis/{API_VERSION}/{plural}"), object }
    })
}

/// What the server says of a flow schema once it has looked for its priority level; none for other objects.
pub fn status(object: &Value, now: &str) -> Option<Value> {
    if object["kind"].str() != "FlowSchema" {
        return None;
    }
    let name = object["metadata"]["name"].str();
    let level = json::quote(object.at("spec.priorityLevelConfiguration.name").str());
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level} and it exists"
    );
    Some(value!({
        "apiVersion": API_VERSION,
        "kind": "FlowSchema",
        "metadata": { "name": name },
        "status": { "conditions": [{
            "type": "Dangling", "status": "False", "lastTransitionTime": now, "reason": "Found", "message": message
        }] }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_levels_and_schemas_that_use_them() {
        let objects = objects();
        assert_eq!(objects.len(), 8 + 11);
        let named = |kind: &str, field: &str| -> Vec<String> {
            let of_kind = objects.iter().filter(|wanted| wanted.object["kind"].str() == kind);
            of_kind.map(|wanted| wanted.object.at(field).str().to_owned()).collect()
        };
        let levels = named("PriorityLevelConfiguration", "metadata.name");
        let used = named("FlowSchema", "spec.priorityLevelConfiguration.name");
        assert!(used.iter().all(|level| levels.contains(level)), "{used:?}");
    }
}
