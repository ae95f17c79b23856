//! The bootstrap priority levels and flow schemas, from `data/flow.yaml`.
//!
//! Mandatory objects always have the spec of the data. Suggested ones have it unless their annotation, or a change of their
//! spec, shows that an operator maintains them. Kubernetes: pkg/registry/flowcontrol/ensurer/strategy.go.

use std::time::Duration;

use futures_util::future::try_join_all;
use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::{Value, value, yaml};

use super::{BootstrapObject, ensure};
use crate::loopback_client::LoopbackClient;

/// How often they are reconciled.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

const DATA: &str = include_str!("../../data/flow.yaml");
/// Their field manager.
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The names of the mandatory priority levels and flow schemas.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// Creates what is missing, updates the rest, and deletes objects of earlier versions.
pub(super) async fn sync(server: &Server) -> Result<(), String> {
    let (client, objects) = (LoopbackClient::new(server, MANAGER), objects());
    // Concurrently, so that the writes share an fsync.
    try_join_all(
        objects
            .iter()
            .map(|object| ensure(&client, object, updated)),
    )
    .await?;
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        let path = format!("/apis/{API_VERSION}/{plural}");
        let (_, list) = client.call(Method::GET, &path, None).await?;
        for stored in list["items"].list() {
            let name = stored["metadata"]["name"].str();
            let is_ours =
                parse_bool(stored["metadata"]["annotations"][AUTO_UPDATE].str()) == Some(true);
            let is_current = objects.iter().any(|BootstrapObject { path: own, object }| {
                *own == path && object["metadata"]["name"].str() == name
            });
            if is_ours && !is_current {
                let path = format!("{path}/{name}");
                client.call(Method::DELETE, &path, None).await?;
            }
        }
    }
    Ok(())
}

/// The stored object with its update; none if it is up to date.
fn updated(stored: &Value, wanted: &Value) -> Option<Value> {
    let name = wanted["metadata"]["name"].str();
    let annotation = parse_bool(stored["metadata"]["annotations"][AUTO_UPDATE].str());
    let is_untouched = stored["metadata"]["generation"].int() == 1;
    let updates = MANDATORY.contains(&name) || annotation.unwrap_or(is_untouched);
    let spec_differs = updates && !is_same_spec(stored, wanted);
    if annotation == Some(updates) && !spec_differs {
        return None;
    }
    let mut updated = stored.clone();
    if spec_differs {
        updated.set("spec", wanted["spec"].clone());
    }
    if annotation != Some(updates) {
        updated
            .entry("metadata")
            .entry("annotations")
            .set(AUTO_UPDATE, updates.to_string());
    }
    Some(updated)
}

/// Whether two specs are equal. Operators may change the shares of the exempt level.
fn is_same_spec(stored: &Value, wanted: &Value) -> bool {
    let is_exempt_level = wanted["kind"].str() == "PriorityLevelConfiguration"
        && wanted["metadata"]["name"].str() == "exempt"
        && !stored["spec"]["exempt"].is_null();
    if !is_exempt_level {
        return stored["spec"] == wanted["spec"];
    }
    let mut wanted = wanted["spec"].clone();
    for field in ["nominalConcurrencyShares", "lendablePercent"] {
        wanted
            .entry("exempt")
            .set(field, stored["spec"]["exempt"][field].clone());
    }
    stored["spec"] == wanted
}

/// All priority levels and flow schemas.
fn objects() -> Vec<BootstrapObject> {
    let data = yaml::read(DATA.as_bytes())
        .map(|document| document.value)
        .unwrap_or_default();
    let levels = objects_of_kind(
        &data,
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
    );
    let schemas = objects_of_kind(&data, "flowschemas", "FlowSchema");
    levels.chain(schemas).collect()
}

fn objects_of_kind<'a>(
    data: &'a Value,
    plural: &'a str,
    kind: &'a str,
) -> impl Iterator<Item = BootstrapObject> + use<'a> {
    data[plural].entries().map(move |(name, spec)| {
        let mut object = value!({
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": { "name": name, "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } }
        });
        object.set("spec", spec.clone());
        BootstrapObject { path: format!("/apis/{API_VERSION}/{plural}"), object }
    })
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the updated annotation and queue length of a level with this annotation, generation and queue length.
    #[track_caller]
    fn check(
        name: &str,
        annotation: &str,
        generation: i64,
        length: i64,
        expected: Option<(&str, i64)>,
    ) {
        let spec = |length: i64| value!({ "type": "Limited", "length": length });
        let wanted = value!({
            "kind": "FlowSchema", "metadata": { "name": name, "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } },
            "spec": (spec(50)),
        });
        let mut stored = wanted.clone();
        stored.set("spec", spec(length));
        stored.entry("metadata").set("generation", generation);
        stored
            .entry("metadata")
            .entry("annotations")
            .set(AUTO_UPDATE, annotation);
        let found = updated(&stored, &wanted);
        let shown = found.as_ref().map(|it| {
            (
                it["metadata"]["annotations"][AUTO_UPDATE].str(),
                it["spec"]["length"].int(),
            )
        });
        assert_eq!(shown, expected, "{name} {annotation} {generation} {length}");
    }

    #[test]
    fn operators_may_change_suggested_objects_but_not_mandatory_ones() {
        check("system", "true", 1, 50, None);
        check("system", "true", 2, 7, Some(("true", 50)));
        check("system", "false", 2, 7, None);
        check("system", "", 1, 7, Some(("true", 50)));
        check("system", "", 2, 7, Some(("false", 7)));
        check("system", "perhaps", 2, 50, Some(("false", 50)));
        check("catch-all", "false", 2, 7, Some(("true", 50)));
        check("catch-all", "T", 2, 50, None);
    }

    #[test]
    fn operators_may_change_the_shares_of_the_exempt_level() {
        let level = |lends: i64, kind: &str| {
            value!({
                "kind": "PriorityLevelConfiguration",
                "metadata": { "name": "exempt", "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } },
                "spec": { "type": kind, "exempt": { "lendablePercent": lends, "nominalConcurrencyShares": 0 } },
            })
        };
        let wanted = level(0, "Exempt");
        assert_eq!(updated(&level(30, "Exempt"), &wanted), None);
        assert_eq!(
            updated(&level(30, "Limited"), &wanted).unwrap()["spec"],
            wanted["spec"]
        );
    }

    #[test]
    fn flow_schemas_name_existing_priority_levels() {
        let objects = objects();
        assert_eq!(objects.len(), 8 + 11);
        let named = |kind: &str, field: &str| -> Vec<String> {
            let of_kind = objects
                .iter()
                .filter(|wanted| wanted.object["kind"].str() == kind);
            of_kind
                .map(|wanted| wanted.object.at(field).str().to_owned())
                .collect()
        };
        let levels = named("PriorityLevelConfiguration", "metadata.name");
        let used = named("FlowSchema", "spec.priorityLevelConfiguration.name");
        assert!(used.iter().all(|level| levels.contains(level)), "{used:?}");
    }
}
