//! The addresses of services, as objects.

use mizzen_controlplane::Options;
use mizzen_value::address::Cidr;

use crate::rig::Rig;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

#[tokio::test]
async fn an_ip_address_is_created_and_deleted_with_its_service() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":80}]}}"#;
    rig.post(SERVICES, body).await.expect(201);
    let address = rig
        .get(&format!("{ADDRESSES}/10.0.0.9"))
        .await
        .expect(200)
        .body;
    let labels = &address["metadata"]["labels"];
    assert_eq!(
        labels["ipaddress.kubernetes.io/managed-by"].str(),
        "ipallocator.k8s.io"
    );
    assert_eq!(labels["ipaddress.kubernetes.io/ip-family"].str(), "IPv4");
    let parent = &address["spec"]["parentRef"];
    assert_eq!(
        (parent["resource"].str(), parent["name"].str()),
        ("services", "s")
    );
    rig.delete(&format!("{SERVICES}/s"), "").await.expect(200);
    rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(404);
}

#[tokio::test]
async fn a_deleted_ip_address_of_a_service_is_restored() {
    let rig = Rig::new().await;
    for (name, address) in [("s", "10.0.0.9"), ("t", "10.0.0.10")] {
        let body = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"{address}","ports":[{{"port":80}}]}}}}"#
        );
        rig.post(SERVICES, &body).await.expect(201);
    }
    let own =
        r#"{"metadata":{"name":"192.0.2.7"},"spec":{"parentRef":{"resource":"x","name":"y"}}}"#;
    rig.post(ADDRESSES, own).await.expect(201);
    let before = rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(200);
    rig.delete(&format!("{ADDRESSES}/10.0.0.9"), "")
        .await
        .expect(200);
    let after = rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(200);
    assert_ne!(
        before.body["metadata"]["uid"],
        after.body["metadata"]["uid"]
    );
    assert_eq!(before.body["spec"], after.body["spec"]);
    rig.delete(ADDRESSES, "").await.expect(200);
    assert_eq!(rig.get(ADDRESSES).await.names(), ["10.0.0.10", "10.0.0.9"]);
    // So is one that loses its labels.
    let label = "ipaddress.kubernetes.io/managed-by";
    let unlabelled = format!(r#"{{"metadata":{{"labels":{{"{label}":null}}}}}}"#);
    rig.patch(&format!("{ADDRESSES}/10.0.0.9"), &unlabelled)
        .await
        .expect(200);
    let repaired = rig.get(&format!("{ADDRESSES}/10.0.0.9")).await.expect(200);
    assert_eq!(
        repaired.body["metadata"]["labels"][label].str(),
        "ipallocator.k8s.io"
    );
}

#[tokio::test]
async fn a_rejected_service_allocates_no_address() {
    let rig = Rig::new().await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    rig.post(SERVICES, body).await.expect(201);
    rig.post(SERVICES, body).await.expect(409);
    rig.post(
        &format!("{SERVICES}?dryRun=All"),
        &body.replace("\"s\"", "\"t\""),
    )
    .await
    .expect(201);
    assert_eq!(rig.get(ADDRESSES).await.names().len(), 1);
}

#[tokio::test]
async fn a_service_that_needs_no_address_releases_it() {
    let rig = Rig::new().await;
    rig.post(
        SERVICES,
        r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#,
    )
    .await
    .expect(201);
    let outside = r#"{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":null,"clusterIPs":null}}"#;
    rig.patch(&format!("{SERVICES}/s"), outside)
        .await
        .expect(200);
    assert_eq!(rig.get(ADDRESSES).await.names(), [""; 0]);
}

#[tokio::test]
async fn an_address_with_an_ip_address_object_is_allocated() {
    let rig = Rig::new().await;
    let body =
        r#"{"metadata":{"name":"10.0.0.7"},"spec":{"parentRef":{"resource":"x","name":"y"}}}"#;
    rig.post(ADDRESSES, body).await.expect(201);
    let service =
        r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.7","ports":[{"port":80}]}}"#;
    let refused = rig.post(SERVICES, service).await.expect(422);
    assert!(
        refused
            .message()
            .ends_with("provided IP is already allocated"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn repair_restores_missing_ip_addresses_and_deletes_orphans() {
    let rig = Rig::new().await;
    rig.post(
        SERVICES,
        r#"{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":80}]}}"#,
    )
    .await
    .expect(201);
    rig.delete(&format!("{ADDRESSES}/10.0.0.9"), "")
        .await
        .expect(200);
    let stray = r#"{"metadata":{"name":"10.0.0.8","labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"gone"}}}"#;
    rig.post(ADDRESSES, stray).await.expect(201);
    mizzen_controlplane::repair(&rig.server).await.unwrap();
    assert_eq!(rig.get(ADDRESSES).await.names(), ["10.0.0.9"]);
}

#[tokio::test]
async fn a_new_service_cidr_is_allocated_from_until_its_deletion() {
    const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    let rig = Rig::new().await;
    let service = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"clusterIP":"10.98.0.{}","ports":[{{"port":80}}]}}}}"#,
            name.len()
        )
    };
    rig.post(SERVICES, &service("a")).await.expect(422);
    let range = r#"{"metadata":{"name":"more","finalizers":["example.com/hold"]},"spec":{"cidrs":["10.98.0.0/28"]}}"#;
    rig.post(RANGES, range).await.expect(201);
    rig.post(SERVICES, &service("a")).await.expect(201);
    rig.delete(&format!("{RANGES}/more"), "").await.expect(200);
    let refused = rig.post(SERVICES, &service("bb")).await.expect(422);
    let expected = "the provided network does not match the current range";
    assert!(
        refused.message().ends_with(expected),
        "{}",
        refused.message()
    );
}

/// A server whose services have addresses of these ranges.
async fn with_ranges(ranges: &[&str]) -> Rig {
    let service_ranges = ranges
        .iter()
        .filter_map(|range| Cidr::parse_sloppy(range))
        .collect();
    Rig::with(Options {
        service_ranges,
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn services_of_an_ipv6_cluster_get_ipv6_addresses() {
    let rig = with_ranges(&["fd00::/120"]).await;
    let service = |address: &str| {
        format!(
            r#"{{"metadata":{{"generateName":"s-"}},"spec":{{"clusterIP":"{address}","ports":[{{"port":80}}]}}}}"#
        )
    };
    let given = rig.post(SERVICES, &service("")).await.expect(201).body;
    assert_eq!(given["spec"]["ipFamilies"][0].str(), "IPv6");
    assert!(
        given["spec"]["clusterIP"].str().starts_with("fd00::"),
        "{:?}",
        given["spec"]
    );
    // The last one is somebody's, and however it is written, it is had once.
    rig.post(SERVICES, &service("FD00::0FF")).await.expect(201);
    let address = rig
        .get(&format!("{ADDRESSES}/fd00::ff"))
        .await
        .expect(200)
        .body;
    assert_eq!(
        address["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"].str(),
        "IPv6"
    );
    for (wanted, why) in [
        ("fd00::ff", "provided IP is already allocated"),
        (
            "fd00::",
            "the provided network does not match the current range",
        ),
        (
            "fd00::100",
            "the provided network does not match the current range",
        ),
        ("10.0.0.7", "IPv4 is not configured on this cluster"),
    ] {
        let refused = rig.post(SERVICES, &service(wanted)).await.expect(422);
        assert!(
            refused.message().contains(why),
            "{wanted}: {}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn an_ipv6_range_is_allocated_to_the_last_address() {
    let rig = with_ranges(&["fd00::/124"]).await;
    for n in 1..=15 {
        let body =
            format!(r#"{{"metadata":{{"name":"s{n}"}},"spec":{{"ports":[{{"port":80}}]}}}}"#);
        rig.post(SERVICES, &body).await.expect(201);
    }
    let body = r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#;
    let refused = rig.post(SERVICES, body).await.expect(500);
    assert!(
        refused.message().ends_with("range is full"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn a_service_may_have_an_address_of_each_family() {
    let rig = with_ranges(&["10.0.0.0/24", "fd00::/64"]).await;
    let body = r#"{"metadata":{"name":"s"},"spec":{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}}"#;
    let spec = rig.post(SERVICES, body).await.expect(201).body["spec"].clone();
    let addresses = spec["clusterIPs"].list();
    assert!(
        addresses[0].str().starts_with("10.0.0.") && addresses[1].str().starts_with("fd00::"),
        "{spec:?}"
    );
    assert_eq!(rig.get(ADDRESSES).await.names().len(), 2);
}

#[tokio::test]
async fn allocation_errors_name_the_service_and_a_dry_run_checks_no_port_range() {
    let rig = Rig::new().await;
    let families =
        r#"{"metadata":{"generateName":"gen-"},"spec":{"ipFamilies":["x"],"ports":[{"port":80}]}}"#;
    let refused = rig.post(SERVICES, families).await.expect(422);
    assert!(
        refused.message().starts_with("Service \"gen-") && !refused.message().contains("\"gen-\""),
        "{}",
        refused.message()
    );
    // The address is allocated before the name is validated, unless it is only tried.
    let refused = rig.post(SERVICES, "{}").await.expect(422);
    let expected = "Service \"\" is invalid: spec.clusterIPs: Invalid value: [\"\"]: failed to allocate IP: \
                    IPAddress.networking.k8s.io \"10.0.0.";
    assert!(
        refused.message().starts_with(expected),
        "{}",
        refused.message()
    );
    assert!(
        refused
            .message()
            .ends_with("\" is invalid: spec.parentRef.name: Required value"),
        "{}",
        refused.message()
    );
    let dry = rig.post(&format!("{SERVICES}?dryRun=All"), "{}").await;
    assert!(
        dry.expect(422)
            .message()
            .contains("metadata.name: Required value: name or generateName is required")
    );
    let port = r#"{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":8080}]}}"#;
    rig.post(SERVICES, port).await.expect(422);
    rig.post(&format!("{SERVICES}?dryRun=All"), port)
        .await
        .expect(201);
}
