//! Keeps the status of flow schemas: whether the priority level that each of them names is there.

use std::collections::HashSet;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use mizzen_apiserver::{Body, Server};
use mizzen_object::{Value, json, value};

use crate::itself::Client;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
/// Under whose name the status is owned.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// How long to wait before looking again when the server does not want to be asked.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs as long as the server does.
pub async fn keep(server: Server) {
    let client = Client::new(&server, MANAGER);
    loop {
        if let Err(error) = follow(&client, &server).await {
            tracing::debug!(%error, "cannot follow flow schemas");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Looks whenever something has changed, until one of the watches ends.
async fn follow(client: &Client, server: &Server) -> Result<(), String> {
    let mut schemas = watch(client, "flowschemas").await?;
    let mut levels = watch(client, "prioritylevelconfigurations").await?;
    loop {
        update(client, &server.registry().timestamp()).await?;
        let frame = tokio::select! {
            frame = schemas.frame() => frame,
            frame = levels.frame() => frame,
        };
        if frame.is_none() {
            return Ok(());
        }
    }
}

async fn watch(client: &Client, plural: &str) -> Result<Body, String> {
    let answer = client.send(Method::GET, &format!("{GROUP}/{plural}?watch=true"), None).await?;
    match answer.status().as_u16() {
        200 => Ok(answer.into_body()),
        code => Err(format!("cannot watch {plural}: {code}")),
    }
}

async fn update(client: &Client, now: &str) -> Result<(), String> {
    let list = |plural: &str| {
        let path = format!("{GROUP}/{plural}");
        async move { client.call(Method::GET, &path, None).await.map(|(_, list)| list) }
    };
    let (schemas, levels) = (list("flowschemas").await?, list("prioritylevelconfigurations").await?);
    let levels: HashSet<&str> =
        levels["items"].list().iter().map(|level| level["metadata"]["name"].str()).collect();
    for schema in schemas["items"].list() {
        let Some(status) = missing_status(schema, &levels, now) else { continue };
        let name = schema["metadata"]["name"].str();
        let path = format!("{GROUP}/flowschemas/{name}/status?fieldManager={MANAGER}&force=true");
        // Who was deleted meanwhile needs none.
        let _ = client.call(Method::PATCH, &path, Some(&status)).await;
    }
    Ok(())
}

/// What has to be applied to a flow schema; none if it says so already.
fn missing_status(schema: &Value, levels: &HashSet<&str>, now: &str) -> Option<Value> {
    let level = schema.at("spec.priorityLevelConfiguration.name").str();
    let shown = json::quote(level);
    let (status, reason, message) = match levels.contains(level) {
        true => ("False", "Found", format!("{shown} and it exists")),
        false => ("True", "NotFound", format!("{shown} but there is no such object")),
    };
    let known = schema.at("status.conditions").list().iter().find(|known| known["type"].str() == "Dangling");
    if known.is_some_and(|known| known["status"].str() == status && known["reason"].str() == reason) {
        return None;
    }
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {message}");
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
        let status = missing_status(&schema, &HashSet::from(["there"]), "now");
        let condition =
            status.map(|status| status.at("status.conditions").list()[0]["message"].str().to_owned());
        assert_eq!(condition.as_deref(), expected);
    }

    #[test]
    fn a_schema_says_whether_its_level_is_there() {
        let prefix = "This FlowSchema references the PriorityLevelConfiguration object named";
        let found = r#"{"spec":{"priorityLevelConfiguration":{"name":"there"}}}"#;
        check(found, Some(&format!(r#"{prefix} "there" and it exists"#)));
        let dangling = r#"{"spec":{"priorityLevelConfiguration":{"name":"gone"}}}"#;
        check(dangling, Some(&format!(r#"{prefix} "gone" but there is no such object"#)));
    }

    #[test]
    fn a_schema_that_says_so_is_left_alone() {
        check(
            r#"{"spec":{"priorityLevelConfiguration":{"name":"there"}},
                "status":{"conditions":[{"type":"Dangling","status":"False","reason":"Found"}]}}"#,
            None,
        );
    }
}
