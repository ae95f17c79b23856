//! Objects that are too large to be kept, or would be with their owners.

use crate::rig::Rig;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LIMIT: usize = 3 * 512 * 1024;

/// A pod whose variables are long, many or both; each has an entry among the owners.
fn pod(name: &str, n_variables: usize, n_bytes: usize) -> String {
    let value = "x".repeat(n_bytes);
    let variables: Vec<String> = (0..n_variables)
        .map(|n| format!(r#"{{"name":"A{n:05}","value":"{value}"}}"#))
        .collect();
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"i","env":[{}]}}]}}}}"#,
        variables.join(",")
    )
}

#[tokio::test]
async fn a_too_large_object_is_rejected() {
    let rig = Rig::new().await;
    rig.post(PODS, &pod("a", 1, LIMIT - 10_000))
        .await
        .expect(201);
    let refused = rig.post(PODS, &pod("b", 1, LIMIT)).await.expect(500);
    assert_eq!(
        refused.body["message"].str(),
        "etcdserver: request is too large"
    );
    rig.get(&format!("{PODS}/b")).await.expect(404);
    // More than that the client of etcd does not send; what it would have sent is the object and the key, twice.
    let refused = rig
        .post(PODS, &pod("b", 1, 2 * 1024 * 1024))
        .await
        .expect(500);
    let message = refused.message();
    let start =
        "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097";
    assert!(
        message.starts_with(start) && message.ends_with(" vs. 2097152)"),
        "{message}"
    );
}

#[tokio::test]
async fn a_too_long_config_map_is_reported_without_a_field() {
    let rig = Rig::new().await;
    let body = format!(
        r#"{{"metadata":{{"name":"a"}},"data":{{"a":"{}"}}}}"#,
        "x".repeat(1024 * 1024 + 1)
    );
    let refused = rig
        .post("/api/v1/namespaces/default/configmaps", &body)
        .await
        .expect(422);
    let expected = "ConfigMap \"a\" is invalid: []: Too long: may not be more than 1048576 bytes";
    assert_eq!(refused.message(), expected);
}

#[tokio::test]
async fn text_may_be_larger_than_its_size_in_etcd() {
    let rig = Rig::new().await;
    let tolerations = vec![r#"{"key":"a","operator":"Exists"}"#; 60_000].join(",");
    let body = pod("a", 1, 1).replace(
        r#""spec":{"#,
        &format!(r#""spec":{{"tolerations":[{tolerations}],"#),
    );
    let kept = rig.post(PODS, &body).await.expect(201);
    assert!(
        mizzen_value::json::to_string(&kept.body).len() > LIMIT,
        "the text is larger than the limit"
    );
}

#[tokio::test]
async fn managed_fields_are_dropped_before_a_large_write_is_rejected() {
    let rig = Rig::new().await;
    let made = rig.post(PODS, &pod("a", 8_000, 50)).await.expect(201);
    assert!(!made.body.at("metadata.managedFields").is_empty());
    let body = pod("b", 14_000, 50);
    let made = rig.post(PODS, &body).await.expect(201);
    assert!(made.body.at("metadata.managedFields").is_empty());
    let applied = format!(
        r#"{{"apiVersion":"v1","kind":"Pod",{}"#,
        &body.replace("\"b\"", "\"c\"")[1..]
    );
    rig.apply(&format!("{PODS}/c"), "me", &applied)
        .await
        .expect(500);
}
