//! The Dangling condition of flow schemas: whether the priority level exists.

use std::collections::HashSet;
use std::time::Duration;

use mizzen_object::condition::find;
use mizzen_registry::{FollowedChanges, Follower, Resource};
use mizzen_value::{Str, Value, json, value};

use super::config_consumer::ConfigSources;
use super::level::PriorityLevelConfiguration;

/// How long to wait after a change, so that writes at start-up are handled together.
const PAUSE: Duration = Duration::from_millis(10);

impl ConfigSources {
    /// Resolves when a priority level or a flow schema changes after this call.
    pub fn next_change(&self) -> impl Future<Output = ()> + use<> {
        let (levels, schemas) = (next_change(&self.levels), next_change(&self.schemas));
        async move {
            tokio::select! {
                () = levels => {}
                () = schemas => {}
            }
        }
    }

    /// The names of the flow schemas whose Dangling condition is not what it should be, and the status to apply.
    pub fn outdated_statuses(&self, now: &str) -> Vec<(Str, Value)> {
        let levels: HashSet<Str> = list_objects(&self.levels)
            .iter()
            .filter_map(PriorityLevelConfiguration::from_object)
            .map(|level| level.name)
            .collect();
        let schemas = list_objects(&self.schemas).into_iter();
        schemas
            .filter_map(|schema| {
                let status = dangling_condition(&schema, &levels, now)?;
                Some((schema["metadata"]["name"].str().into(), status))
            })
            .collect()
    }
}

/// Resolves when the resource changes after this call.
fn next_change(resource: &Resource) -> impl Future<Output = ()> + use<> {
    let watch = resource.space().watch(resource.space().snapshot().at());
    async move {
        // After an error, such as a lost history, all objects are read again as well.
        if let Ok(mut watch) = watch {
            let _ = watch.next().await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn list_objects(resource: &Resource) -> Vec<Value> {
    match Follower::new(resource.clone()).changes() {
        FollowedChanges::All(objects) => objects,
        FollowedChanges::Some(changed) => changed
            .into_iter()
            .filter_map(|changed| changed.after)
            .collect(),
    }
}

/// The status to apply to a flow schema; none if it is up to date.
fn dangling_condition(schema: &Value, levels: &HashSet<Str>, now: &str) -> Option<Value> {
    let level = schema.at("spec.priorityLevelConfiguration.name").str();
    let shown = json::quote(level);
    let (status, reason, end) = match levels.contains(level) {
        true => ("False", "Found", format!("{shown} and it exists")),
        false => (
            "True",
            "NotFound",
            format!("{shown} but there is no such object"),
        ),
    };
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {end}");
    let known = find(schema.at("status.conditions"), "Dangling");
    let says =
        |known: &Value| ["status", "reason", "message"].map(|field| known[field].str().to_owned());
    if known.is_some_and(|known| says(known) == [status, reason, &message]) {
        return None;
    }
    Some(value!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": { "name": (schema["metadata"]["name"].str()) },
        "status": { "conditions": [{
            "type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason, "message": message
        }] }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &str, expected: Option<&str>) {
        let schema = json::parse(schema.as_bytes()).unwrap();
        let status = dangling_condition(&schema, &HashSet::from(["there".into()]), "now");
        let condition = status.map(|status| {
            status.at("status.conditions").list()[0]["message"]
                .str()
                .to_owned()
        });
        assert_eq!(condition.as_deref(), expected);
    }

    const PREFIX: &str = "This FlowSchema references the PriorityLevelConfiguration object named";

    #[test]
    fn a_flow_schema_has_a_condition_if_its_level_is_missing() {
        let found = r#"{"spec":{"priorityLevelConfiguration":{"name":"there"}}}"#;
        check(found, Some(&format!(r#"{PREFIX} "there" and it exists"#)));
        let dangling = r#"{"spec":{"priorityLevelConfiguration":{"name":"gone"}}}"#;
        check(
            dangling,
            Some(&format!(r#"{PREFIX} "gone" but there is no such object"#)),
        );
    }

    #[test]
    fn a_flow_schema_with_a_current_condition_is_not_written() {
        let said = |message: &str| {
            format!(
                r#"{{"spec":{{"priorityLevelConfiguration":{{"name":"there"}}}},
                   "status":{{"conditions":[{{"type":"Dangling","status":"False","reason":"Found","message":"{message}"}}]}}}}"#
            )
        };
        check(&said(&format!(r#"{PREFIX} \"there\" and it exists"#)), None);
        check(
            &said("another name"),
            Some(&format!(r#"{PREFIX} "there" and it exists"#)),
        );
    }
}
