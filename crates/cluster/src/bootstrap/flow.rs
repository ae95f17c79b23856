//! The priority levels and flow schemas that every cluster has, read from `data/flow.yaml`. The server keeps their
//! status.

use mizzen_object::{Value, value, yaml};

use super::Wanted;

const DATA: &str = include_str!("../../data/flow.yaml");
/// Under whose name their fields are owned.
pub const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// All of them.
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
