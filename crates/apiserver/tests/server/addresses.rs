//! The addresses of services, as objects.

use crate::rig::Rig;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

#[tokio::test]
async fn an_address_comes_and_goes_with_its_service() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":80}]}}"#;
    rig.post(SERVICES, body).await.expect(201);
    let address = rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(200).body;
    let labels = &address["metadata"]["labels"];
    assert_eq!(labels["ipaddress.kubernetes.io/managed-by"].str(), "ipallocator.k8s.io");
    assert_eq!(labels["ipaddress.kubernetes.io/ip-family"].str(), "IPv4");
    let parent = &address["spec"]["parentRef"];
    assert_eq!((parent["resource"].str(), parent["name"].str()), ("services", "s"));
    rig.delete(&format!("{SERVICES}/s"), "").await.expect(200);
    rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(404);
}

#[tokio::test]
async fn a_service_that_is_refused_leaves_no_address() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    rig.post(SERVICES, body).await.expect(201);
    rig.post(SERVICES, body).await.expect(409);
    rig.post(&format!("{SERVICES}?dryRun=All"), &body.replace("\"s\"", "\"t\"")).await.expect(201);
    assert_eq!(rig.get(ADDRESSES).await.names().len(), 1);
}

#[tokio::test]
async fn a_service_that_needs_no_address_any_more_gives_it_up() {
    let rig = Rig::new().await;
    rig.post(SERVICES, r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#).await.expect(201);
    let outside =
        r#"{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}"#;
    rig.patch(&format!("{SERVICES}/s"), outside).await.expect(200);
    assert_eq!(rig.get(ADDRESSES).await.names(), [""; 0]);
}

#[tokio::test]
async fn an_address_that_somebody_made_is_taken() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"10.0.0.7"},"spec":{"parentRef":{"resource":"x","name":"y"}}}"#;
    rig.post(ADDRESSES, body).await.expect(201);
    let service = r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.7","ports":[{"port":80}]}}"#;
    let refused = rig.post(SERVICES, service).await.expect(422);
    assert!(refused.message().ends_with("provided IP is already allocated"), "{}", refused.message());
}

#[tokio::test]
async fn what_was_left_behind_is_put_in_order() {
    let rig = Rig::new().await;
    rig.post(SERVICES, r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":80}]}}"#)
        .await
        .expect(201);
    rig.delete(&format!("{ADDRESSES}/10.0.0.9"), "").await.expect(200);
    let stray = r#"{"metadata":{"name":"10.0.0.8","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"gone"}}}"#;
    rig.post(ADDRESSES, stray).await.expect(201);
    rig.server.repair().await;
    assert_eq!(rig.get(ADDRESSES).await.names(), ["10.0.0.9"]);
}

#[tokio::test]
async fn a_range_that_somebody_adds_gives_addresses_while_it_stays() {
    const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    let rig = Rig::new().await;
    let service = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"10.98.0.{}","ports":[{{"port":80}}]}}}}"#,
            name.len()
        )
    };
    rig.post(SERVICES, &service("a")).await.expect(422);
    let range =
        r#"{"metadata":{"name":"more","finalizers":["example.com/hold"]},"spec":{"cidrs":["10.98.0.0/28"]}}"#;
    rig.post(RANGES, range).await.expect(201);
    rig.post(SERVICES, &service("a")).await.expect(201);
    rig.delete(&format!("{RANGES}/more"), "").await.expect(200);
    let refused = rig.post(SERVICES, &service("bb")).await.expect(422);
    let expected = "the provided network does not match the current range";
    assert!(refused.message().ends_with(expected), "{}", refused.message());
}
