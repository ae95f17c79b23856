//! Writes the Dangling condition of flow schemas: whether the priority level exists.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use mizzen_object::User;
use mizzen_object::condition::find;
use mizzen_registry::{FollowedChanges, Follower, Resource};
use mizzen_value::{Str, Value, json, value};

use super::config_consumer::ConfigSources;
use super::level::PriorityLevelConfiguration;
use crate::server::{Server, ServerParts};

/// The field manager of the status.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
/// How long to wait after a change, so that writes at start-up are handled together.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes conditions after each change, until the server stops.
pub(super) async fn run_status_updates(server: Weak<ServerParts>, sources: ConfigSources) {
    loop {
        let (levels, schemas) = (next_change(&sources.levels), next_change(&sources.schemas));
        match server.upgrade() {
            Some(server) => update_conditions(&server, &sources).await,
            None => return,
        }
        tokio::select! {
            () = levels => {}
            () = schemas => {}
            () = stopped(&server) => return,
        }
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

async fn stopped(server: &Weak<ServerParts>) {
    let Some(mut stopping) = server.upgrade().map(|server| server.stopping.subscribe()) else {
        return;
    };
    let _ = stopping.wait_for(|stopping| *stopping).await;
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

async fn update_conditions(server: &Arc<ServerParts>, sources: &ConfigSources) {
    let levels: HashSet<Str> = list_objects(&sources.levels)
        .iter()
        .filter_map(PriorityLevelConfiguration::from_object)
        .map(|level| level.name)
        .collect();
    for schema in list_objects(&sources.schemas) {
        if let Some(status) = dangling_condition(&schema, &levels, &server.registry.timestamp()) {
            let name = schema["metadata"]["name"].str();
            apply_status(&Server(server.clone()), name, &status).await;
        }
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

/// Applies a status. Not found means that the schema was deleted; a changed one is handled after
/// its own event.
async fn apply_status(server: &Server, name: &str, status: &Value) {
    let path = format!("{SCHEMAS}/{name}/status?fieldManager={MANAGER}&force=true");
    let Ok(uri) = path.parse() else { return };
    let mut headers = HeaderMap::new();
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static("kube-apiserver"),
    );
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/apply-patch+yaml"),
    );
    let user = User::master("system:apiserver");
    let answer = server
        .call(
            Some(user),
            Method::PATCH,
            uri,
            headers,
            Bytes::from(json::to_string(status)),
        )
        .await;
    if !matches!(answer.status().as_u16(), 200 | 404) {
        tracing::debug!(
            name,
            code = answer.status().as_u16(),
            "cannot write the status of a flow schema"
        );
    }
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
    fn a_schema_says_whether_its_level_is_there() {
        let found = r#"{"spec":{"priorityLevelConfiguration":{"name":"there"}}}"#;
        check(found, Some(&format!(r#"{PREFIX} "there" and it exists"#)));
        let dangling = r#"{"spec":{"priorityLevelConfiguration":{"name":"gone"}}}"#;
        check(
            dangling,
            Some(&format!(r#"{PREFIX} "gone" but there is no such object"#)),
        );
    }

    #[test]
    fn a_schema_that_says_so_is_left_alone() {
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
