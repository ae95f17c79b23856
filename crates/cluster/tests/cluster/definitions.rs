//! Custom resource definitions: when they are served, and the cost of many.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::process::Home;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The size of a large definition.
const LARGE: usize = 30_000;
/// The number of definitions; `MIZZEN_DEFINITIONS=2000` measures many.
const MANY: usize = 40;
/// The memory limit per definition, including its text in the store.
const EACH: u64 = 75_000;
/// Memory besides definitions: buffers, threads, certificates.
const SLACK: u64 = 32 * 1024 * 1024;

fn many() -> usize {
    std::env::var("MIZZEN_DEFINITIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(MANY)
}

/// A definition with a schema of about [`LARGE`] bytes.
fn definition(at: usize) -> Value {
    let mut fields = Map::new();
    while serde_json::to_string(&fields).unwrap().len() < LARGE {
        let field = json!({
            "type": "object",
            "description": "what this field means, in words that are here to be long",
            "properties": { "a": { "type": "string", "pattern": "^[a-z]+$" }, "b": { "type": "integer", "minimum": 0 } },
        });
        fields.insert(format!("field{}", fields.len()), field);
    }
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": fields } } });
    let group = format!("g{}.example.com", at % 50);
    json!({
        "metadata": { "name": format!("k{at}s.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": format!("k{at}s"), "kind": format!("K{at}") },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

#[tokio::test]
async fn many_large_definitions_are_cheap_and_survive_a_restart() {
    let home = Home::on_disk();
    let process = home.start().await;
    let (client, empty) = (process.admin().await, process.resident_bytes());
    let mut waited = Vec::new();
    for at in 0..many() {
        let definition = definition(at);
        client
            .post(DEFINITIONS, definition.to_string())
            .await
            .expect(201);
        let started = Instant::now();
        let path = format!("/apis/g{}.example.com/v1/k{at}s", at % 50);
        client.get(&path).await.expect(200);
        waited.push(started.elapsed());
    }
    let full = process.resident_bytes();
    process.stop().await;

    let started = Instant::now();
    let process = home.start().await;
    let ready = started.elapsed();
    let last = many() - 1;
    let path = format!(
        "/apis/g{}.example.com/v1/namespaces/default/k{last}s",
        last % 50
    );
    let object = json!({ "apiVersion": format!("g{}.example.com/v1", last % 50), "kind": format!("K{last}"), "metadata": { "name": "one" } });
    process
        .admin()
        .await
        .post(&path, object.to_string())
        .await
        .expect(201);
    let again = process.resident_bytes();
    waited.sort();
    println!(
        "{} definitions: first use after {:?} (median), {} KiB each while they are made and used, {} KiB each after a \
         restart, which took {ready:?}",
        many(),
        waited[waited.len() / 2],
        full.saturating_sub(empty) / 1024 / many() as u64,
        again.saturating_sub(empty) / 1024 / many() as u64,
    );
    assert!(
        again < empty + SLACK + EACH * many() as u64,
        "{again} bytes, {empty} when empty"
    );
    assert!(waited[0] < Duration::from_secs(5), "{waited:?}");
    process.stop().await;
}
