//! `mizzen up` runs StorageVersionMigrations once their CRD exists.

use serde_json::{Value, json};

use crate::client::Client;
use crate::process::Home;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/default/foos";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:storage-version-migrator-controller";

/// Creates a CRD that preserves unknown fields. The last version is the storage version.
async fn define(client: &Client, kind: &str, group: &str, versions: &[&str]) {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": Some(name) == versions.last(), "schema": schema,
               "subresources": {"status": {}}})
    };
    let name = format!("{plural}.{group}");
    let approved =
        json!({"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements"});
    let definition = json!({
        "metadata": {"name": name, "annotations": approved},
        "spec": {
            "group": group, "scope": if group == "example.com" { "Namespaced" } else { "Cluster" },
            "names": {"plural": plural, "singular": singular, "kind": kind},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    });
    match client.get(&format!("{DEFINITIONS}/{name}")).await.status {
        404 => client
            .post(DEFINITIONS, definition.to_string())
            .await
            .expect(201),
        _ => client
            .call(
                "PATCH",
                &format!("{DEFINITIONS}/{name}"),
                definition.to_string(),
            )
            .await
            .expect(200),
    };
}

/// The first state of an object that satisfies a condition.
async fn until(client: &Client, path: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut events = client
        .watch(&format!(
            "{path}?watch=true&fieldSelector=metadata.name={name}"
        ))
        .await;
    loop {
        let event = events.next().await.expect("the watch goes on");
        if wanted(&event["object"]) {
            return event["object"].clone();
        }
    }
}

#[tokio::test]
async fn storage_version_migrations_rewrite_objects() {
    let home = Home::in_memory().whole();
    let process = home.start().await;
    let client = process.admin().await;
    client.get(ROLE).await.expect(404);
    define(&client, "Foo", "example.com", &["v1"]).await;
    client
        .post(
            FOOS,
            json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}})
                .to_string(),
        )
        .await
        .expect(201);
    define(&client, "Foo", "example.com", &["v1", "v2"]).await;
    let stored = client
        .get(&format!("{DEFINITIONS}/foos.example.com"))
        .await
        .expect(200)
        .json();
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v2"]));

    define(
        &client,
        "StorageVersionMigration",
        "storagemigration.k8s.io",
        &["v1beta1"],
    )
    .await;
    let migration = json!({
        "apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": "foos"},
        "spec": {"resource": {"group": "example.com", "resource": "foos"}},
    });
    client
        .post(MIGRATIONS, migration.to_string())
        .await
        .expect(201);
    let is = |type_: &str, object: &Value| {
        let conditions = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        conditions
            .into_iter()
            .any(|one| one["type"] == type_ && one["status"] == "True")
    };
    until(&client, MIGRATIONS, "foos", |migration| {
        is("Succeeded", migration)
    })
    .await;
    let only = json!(["v2"]);
    until(&client, DEFINITIONS, "foos.example.com", |kind| {
        kind["status"]["storedVersions"] == only
    })
    .await;
    client.get(ROLE).await.expect(200);
    process.stop().await;
}
