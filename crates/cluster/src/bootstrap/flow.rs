//! The priority levels and flow schemas that every cluster has, read from `data/flow.yaml`. The server keeps their
//! status.
//!
//! Mandatory ones always say what the data says. Suggested ones do so unless their annotation, or a change of their spec,
//! says that an operator keeps them. Kubernetes: pkg/registry/flowcontrol/ensurer/strategy.go.

use std::time::Duration;

use futures_util::future::try_join_all;
use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::{Value, value, yaml};

use super::Wanted;
use crate::itself::Client;

/// How often they are reconciled.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);

const DATA: &str = include_str!("../../data/flow.yaml");
/// Under whose name their fields are owned.
const MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// The names of mandatory priority levels, and of mandatory flow schemas. Without them requests would have no place.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// Creates what is missing, brings the rest up to date, and deletes what an earlier version has left.
pub(super) async fn sync(server: &Server) -> Result<(), String> {
    let (client, objects) = (Client::new(server, MANAGER), objects());
    // All at once: they share the disk's time.
    try_join_all(objects.iter().map(|wanted| ensure(&client, wanted))).await?;
    for plural in ["flowschemas", "prioritylevelconfigurations"] {
        remove_unwanted(&client, plural, &objects).await?;
    }
    Ok(())
}

async fn ensure(client: &Client, Wanted { path, object }: &Wanted) -> Result<(), String> {
    let own = format!("{path}/{}", object["metadata"]["name"].str());
    let (code, stored) = client.call(Method::GET, &own, None).await?;
    if code == 404 {
        return client
            .call(Method::POST, path, Some(object))
            .await
            .map(drop);
    }
    match revised(&stored, object) {
        Some(revised) => client
            .call(Method::PUT, &own, Some(&revised))
            .await
            .map(drop),
        None => Ok(()),
    }
}

/// The stored object as it must be; none if it is.
fn revised(stored: &Value, wanted: &Value) -> Option<Value> {
    let name = wanted["metadata"]["name"].str();
    let annotation = parse_bool(stored["metadata"]["annotations"][AUTO_UPDATE].str());
    let is_untouched = stored["metadata"]["generation"].int() == 1;
    let updates = MANDATORY.contains(&name) || annotation.unwrap_or(is_untouched);
    let spec_differs = updates && !is_same_spec(stored, wanted);
    if annotation == Some(updates) && !spec_differs {
        return None;
    }
    let mut revised = stored.clone();
    if spec_differs {
        revised.set("spec", wanted["spec"].clone());
    }
    if annotation != Some(updates) {
        revised
            .entry("metadata")
            .entry("annotations")
            .set(AUTO_UPDATE, updates.to_string());
    }
    Some(revised)
}

/// Whether two specs are the same. How much the exempt level may lend is the operator's choice.
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

/// Deletes objects that the server once created and does not want any more.
async fn remove_unwanted(client: &Client, plural: &str, wanted: &[Wanted]) -> Result<(), String> {
    let path = format!("/apis/{API_VERSION}/{plural}");
    let (_, list) = client.call(Method::GET, &path, None).await?;
    for object in list["items"].list() {
        let name = object["metadata"]["name"].str();
        let is_wanted = wanted
            .iter()
            .any(|one| one.path == path && one.object["metadata"]["name"].str() == name);
        let is_ours =
            parse_bool(object["metadata"]["annotations"][AUTO_UPDATE].str()) == Some(true);
        if is_ours && !is_wanted {
            client
                .call(Method::DELETE, &format!("{path}/{name}"), None)
                .await?;
        }
    }
    Ok(())
}

/// A truth value as Go's `strconv.ParseBool` reads it.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// All of them.
fn objects() -> Vec<Wanted> {
    let data = yaml::read(DATA.as_bytes())
        .map(|document| document.value)
        .unwrap_or_default();
    let levels = made(
        &data,
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
    );
    let schemas = made(&data, "flowschemas", "FlowSchema");
    levels.chain(schemas).collect()
}

fn made<'a>(
    data: &'a Value,
    plural: &'a str,
    kind: &'a str,
) -> impl Iterator<Item = Wanted> + use<'a> {
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

    /// What becomes of the level of this name whose annotation, generation and queue length are these: annotation and length.
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
        let found = revised(&stored, &wanted);
        let shown = found.as_ref().map(|it| {
            (
                it["metadata"]["annotations"][AUTO_UPDATE].str(),
                it["spec"]["length"].int(),
            )
        });
        assert_eq!(shown, expected, "{name} {annotation} {generation} {length}");
    }

    #[test]
    fn an_operator_may_keep_what_is_suggested_and_not_what_is_mandatory() {
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
    fn how_much_the_exempt_level_lends_is_the_operators_choice() {
        let level = |lends: i64, kind: &str| {
            value!({
                "kind": "PriorityLevelConfiguration",
                "metadata": { "name": "exempt", "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } },
                "spec": { "type": kind, "exempt": { "lendablePercent": lends, "nominalConcurrencyShares": 0 } },
            })
        };
        let wanted = level(0, "Exempt");
        assert_eq!(revised(&level(30, "Exempt"), &wanted), None);
        assert_eq!(
            revised(&level(30, "Limited"), &wanted).unwrap()["spec"],
            wanted["spec"]
        );
    }

    #[test]
    fn there_are_levels_and_schemas_that_use_them() {
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
