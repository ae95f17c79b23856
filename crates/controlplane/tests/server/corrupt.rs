//! Stored records that cannot be decoded, as clients, operators and a starting server see them.

use http_body_util::BodyExt as _;
use mizzen_store::{Draft, Expect, Write};

use crate::crd::{DEFINITIONS, FOOS, define, definition, foo, version};
use crate::rig::{CONFIG_MAPS, Rig};

/// Writes what is no object in the place of one.
async fn corrupt(rig: &Rig, space: &str, key: &str) {
    let store = rig.server.registry().store();
    let draft = Draft {
        value: "not json".into(),
        ..Draft::default()
    };
    let write = Write::put(&store.keyspace(space), key, Expect::Any, draft);
    store.commit_one(write).await.unwrap();
}

const PROBLEM: &str = "invalid character 'o' in literal null (expecting 'u')";

#[tokio::test]
async fn a_record_that_cannot_be_decoded_is_a_500_in_upstreams_words() {
    let rig = Rig::new().await;
    corrupt(&rig, "configmaps", "default/a").await;
    rig.make("b", "").await;
    let object = &format!("{CONFIG_MAPS}/a");
    let whole = r#"{"metadata":{"name":"a"}}"#;
    for (method, path, body) in [
        ("GET", object.as_str(), ""),
        ("GET", CONFIG_MAPS, ""),
        ("PUT", object, whole),
        ("PATCH", object, r#"{"data":{"k":"v"}}"#),
        ("DELETE", object, ""),
        ("DELETE", CONFIG_MAPS, ""),
    ] {
        let reply = rig.call(method, path, body).await.expect(500);
        assert_eq!(reply.body["message"].str(), PROBLEM, "{method} {path}");
        assert!(reply.body["reason"].is_null());
    }
    let taken = rig.post(CONFIG_MAPS, whole).await.expect(409);
    assert_eq!(taken.body["reason"].str(), "AlreadyExists");
    rig.get(&format!("{CONFIG_MAPS}/b")).await.expect(200);

    let answer = rig.send("GET", "/metrics", "").await;
    let page = answer.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8(page.to_vec()).unwrap();
    let counter = r#"apiserver_storage_decode_errors_total{group="",resource="configmaps"} "#;
    let line = page.lines().find(|line| line.starts_with(counter));
    assert_eq!(line, Some(format!("{counter}7").as_str()));
}

#[tokio::test]
async fn a_server_starts_with_an_undecodable_definition_and_serves_the_remaining_ones() {
    let rig = Rig::new().await;
    define(&rig, &definition(vec![version("v1", true, "{}")])).await;
    rig.post(FOOS, &foo("v1", "one", "{}")).await.expect(201);
    let definitions = "apiextensions.k8s.io/customresourcedefinitions";
    corrupt(&rig, definitions, "bars.example.com").await;
    let rig = rig.restarted().await;
    rig.get(&format!("{FOOS}/one")).await.expect(200);
    rig.get(&FOOS.replace("foos", "bars")).await.expect(404);
    rig.get(DEFINITIONS).await.expect(500);
    rig.get(&format!("{DEFINITIONS}/foos.example.com"))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_webhook_configuration_that_cannot_be_decoded_fails_writes() {
    let rig = Rig::new().await;
    let space = "admissionregistration.k8s.io/validatingwebhookconfigurations";
    corrupt(&rig, space, "a").await;
    let refused = rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"}}"#).await;
    assert_eq!(refused.expect(500).body["message"].str(), PROBLEM);
    rig.get(CONFIG_MAPS).await.expect(200);
}

#[tokio::test]
async fn policies_and_webhooks_that_cannot_be_decoded_leave_the_configuration_of_admission_writable()
 {
    const GROUP: &str = "admissionregistration.k8s.io";
    for plural in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "mutatingadmissionpolicies",
    ] {
        let rig = Rig::new().await;
        corrupt(&rig, &format!("{GROUP}/{plural}"), "a").await;
        let refused = rig.post(CONFIG_MAPS, r#"{"metadata":{"name":"a"}}"#).await;
        assert_eq!(
            refused.expect(500).body["message"].str(),
            PROBLEM,
            "{plural}"
        );
        // What is no configuration for its own kind of plug-in only.
        let (path, body) = match plural.ends_with("policies") {
            true => (
                "mutatingadmissionpolicybindings",
                r#"{"metadata":{"name":"b"},"spec":{"policyName":"p"}}"#,
            ),
            false => (
                "validatingwebhookconfigurations",
                r#"{"metadata":{"name":"b"}}"#,
            ),
        };
        let path = format!("/apis/{GROUP}/v1/{path}");
        rig.post(&path, body).await.expect(201);
    }
}

#[tokio::test]
async fn an_address_stays_if_its_service_cannot_be_decoded() {
    let rig = Rig::new().await;
    let service = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    let services = "/api/v1/namespaces/default/services";
    let created = rig.post(services, service).await.expect(201).body;
    let address = created["spec"]["clusterIP"].str().to_owned();
    corrupt(&rig, "services", "default/s").await;
    let rig = rig.restarted().await;
    let path = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    rig.get(&path).await.expect(200);
}
