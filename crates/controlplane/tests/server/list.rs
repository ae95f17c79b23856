//! Lists in pages and lists of the past.

use std::io::Read as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use mizzen_apiserver::User;
use mizzen_object::proto;
use mizzen_value::json;
use tokio::time::Instant;

use crate::rig::{CONFIG_MAPS, Reply, Rig};

/// The path of the page after this one; none after the last.
fn next_page(page: &Reply) -> Option<String> {
    let token = page.body.at("metadata.continue").str();
    (!token.is_empty()).then(|| format!("{CONFIG_MAPS}?limit=10&continue={token}"))
}

#[tokio::test]
async fn pages_show_one_revision_despite_concurrent_writes() {
    let rig = Rig::new().await;
    for number in 10..35 {
        rig.make(&format!("n{number}"), "").await;
    }
    let first = rig
        .get(&format!("{CONFIG_MAPS}?limit=10"))
        .await
        .expect(200);
    assert_eq!(first.body.at("metadata.remainingItemCount").int(), 15);
    let (version, mut names, mut page) = (first.version(), first.names(), first);
    while let Some(path) = next_page(&page) {
        rig.make(&format!("n{}5a", names.len()), "").await;
        rig.delete(&format!("{CONFIG_MAPS}/n{}", 9 + names.len() + 3), "")
            .await
            .expect(200);
        page = rig.get(&path).await.expect(200);
        assert_eq!(page.version(), version);
        names.extend(page.names());
    }
    let expected: Vec<String> = (10..35).map(|number| format!("n{number}")).collect();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_modified_continue_token_is_rejected() {
    let rig = Rig::new().await;
    for token in [
        "nonsense",
        "e30",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9zZWNyZXRzIn0",
    ] {
        rig.get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
            .await
            .expect(400);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_can_be_matched_exactly_or_at_least() {
    let rig = Rig::new().await;
    let version = rig.make("a", "").await.version();
    rig.make("b", "").await;
    let list = |query: String| {
        let rig = rig.clone();
        async move { rig.get(&format!("{CONFIG_MAPS}?{query}")).await }
    };
    let exact = list(format!(
        "resourceVersion={version}&resourceVersionMatch=Exact"
    ))
    .await
    .expect(200);
    assert_eq!(
        (exact.names(), exact.version()),
        (vec!["a".to_owned()], version)
    );
    let newer = list(format!(
        "resourceVersion={version}&resourceVersionMatch=NotOlderThan"
    ))
    .await
    .expect(200);
    assert_eq!(newer.names(), ["a", "b"]);
    list("resourceVersionMatch=Exact".into()).await.expect(422);
    list("resourceVersion=0&resourceVersionMatch=Exact".into())
        .await
        .expect(422);
    list("resourceVersion=1&resourceVersionMatch=Nonsense".into())
        .await
        .expect(422);
    list(format!(
        "resourceVersion={}&resourceVersionMatch=NotOlderThan",
        version + 1000
    ))
    .await
    .expect(504);
}

/// What is answered to somebody who wants metadata in this form.
async fn metadata_of(rig: &Rig, form: &str, path: &str) -> Reply {
    let accept = format!("application/json;as={form};g=meta.k8s.io;v=v1,application/json");
    rig.call_as(
        User::master("admin"),
        &[("accept", &accept)],
        "GET",
        path,
        "",
    )
    .await
}

#[tokio::test]
async fn partial_object_metadata_list_is_only_for_lists() {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let one = format!("{CONFIG_MAPS}/a");
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Cluster",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    rig.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await
    .expect(201);
    metadata_of(&rig, "PartialObjectMetadata", &one)
        .await
        .expect(200);
    metadata_of(&rig, "PartialObjectMetadataList", CONFIG_MAPS)
        .await
        .expect(200);
    for (form, path, found) in [
        (
            "PartialObjectMetadata",
            CONFIG_MAPS,
            "a list (*core.ConfigMapList)",
        ),
        (
            "PartialObjectMetadata",
            "/apis/events.k8s.io/v1/events",
            "a list (*core.EventList)",
        ),
        (
            "PartialObjectMetadata",
            "/apis/rbac.authorization.k8s.io/v1/roles",
            "a list (*rbac.RoleList)",
        ),
        (
            "PartialObjectMetadata",
            "/apis/example.com/v1/foos",
            "a list (*unstructured.UnstructuredList)",
        ),
        (
            "PartialObjectMetadataList",
            &*one,
            "not a list (*core.ConfigMap)",
        ),
    ] {
        let refused = metadata_of(&rig, form, path).await.expect(406);
        assert_eq!(
            refused.message(),
            format!("you requested {form}, but the requested object is {found}"),
            "{path}"
        );
    }
}

/// The body of a list in one form.
async fn body(rig: &Rig, accept: &str, encoding: &str, path: &str) -> Bytes {
    let headers = [("accept", accept), ("accept-encoding", encoding)];
    let answer = rig
        .send_as(User::master("admin"), &headers, "GET", path, "")
        .await;
    assert_eq!(answer.status(), 200);
    let is_compressed = answer
        .headers()
        .get("content-encoding")
        .is_some_and(|it| it == "gzip");
    assert_eq!(is_compressed, encoding == "gzip", "{accept}");
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let mut plain = Vec::new();
    match is_compressed {
        true => GzDecoder::new(&bytes[..])
            .read_to_end(&mut plain)
            .map(|_| plain.into())
            .unwrap(),
        false => bytes,
    }
}

/// Lists are joined and compressed while they are read, from what the store has.
#[tokio::test]
async fn a_long_list_is_the_same_compressed_and_plain_in_every_encoding() {
    let rig = Rig::new().await;
    for number in 0..300 {
        // Some are long enough to go alone.
        rig.make(
            &format!("c{number:03}"),
            &format!("{number}").repeat(500 + number % 7 * 3_000),
        )
        .await;
    }
    for form in [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ] {
        let plain = body(&rig, form, "identity", CONFIG_MAPS).await;
        assert!(plain.len() > 5_000_000, "{form}: {} bytes", plain.len());
        assert_eq!(body(&rig, form, "gzip", CONFIG_MAPS).await, plain, "{form}");
    }
    let list = body(
        &rig,
        "application/vnd.kubernetes.protobuf",
        "gzip",
        CONFIG_MAPS,
    )
    .await;
    let unknown = proto::decode_object(&list).unwrap();
    assert_eq!(&*unknown.kind, "ConfigMapList");
    let json = body(&rig, "application/json", "gzip", CONFIG_MAPS).await;
    let items = json::parse(&json).unwrap()["items"].list().to_vec();
    assert_eq!(items.len(), 300);
    // An item is the message of its object, which is what a single one is.
    for name in ["c000", "c299"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let one = body(
            &rig,
            "application/vnd.kubernetes.protobuf",
            "identity",
            &path,
        )
        .await;
        let message = proto::decode_object(&one).unwrap().raw;
        assert!(
            unknown
                .raw
                .windows(message.len())
                .any(|window| window == message),
            "{name}"
        );
    }
}

/// Everything that reads at least at a version, and the path by which it does.
fn reads_at(version: u64) -> Vec<String> {
    let token = base64(&format!(
        r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":"a\u0000"}}"#
    ));
    vec![
        format!("{CONFIG_MAPS}/a?resourceVersion={version}"),
        format!("{CONFIG_MAPS}/missing?resourceVersion={version}"),
        format!("{CONFIG_MAPS}?resourceVersion={version}"),
        format!("{CONFIG_MAPS}?resourceVersion={version}&limit=1"),
        format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        format!("{CONFIG_MAPS}?continue={token}"),
    ]
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

#[tokio::test(start_paused = true)]
async fn a_resource_version_with_a_continue_token_is_rejected_before_any_wait() {
    let rig = Rig::new().await;
    let token = base64(r#"{"v":"meta.k8s.io/v1","rv":1099511627776,"start":"a\u0000"}"#);
    for version in ["1", "x"] {
        let began = Instant::now();
        let path = format!("{CONFIG_MAPS}?continue={token}&resourceVersion={version}");
        let refused = rig.get(&path).await.expect(400);
        let expected = "specifying resource version is not allowed when using continue";
        assert_eq!(refused.message(), expected);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_resource_version_is_awaited_for_three_seconds() {
    let rig = Rig::new().await;
    let current = rig.make("a", "").await.version();
    for path in reads_at(current + 5) {
        let began = Instant::now();
        let refused = rig.get(&path).await.expect(504);
        assert_eq!(began.elapsed(), Duration::from_secs(3), "{path}");
        let message = format!(
            "Timeout: Too large resource version: {}, current: {current}",
            current + 5
        );
        assert_eq!(refused.message(), message, "{path}");
        assert_eq!(refused.body.at("details.retryAfterSeconds").int(), 1);
        let cause = &refused.body.at("details.causes").list()[0];
        assert_eq!(cause["reason"].str(), "ResourceVersionTooLarge");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_version_that_is_reached_is_served_at_once() {
    let rig = Rig::new().await;
    let current = rig.make("a", "").await.version();
    let n_reads = reads_at(0).len();
    for read in 0..n_reads {
        let began = Instant::now();
        let path = reads_at(current + 1 + read as u64)[read].clone();
        let name = format!("b{read}");
        let (reply, _) = tokio::join!(rig.get(&path), rig.make(&name, ""));
        reply.expect(if path.contains("missing") { 404 } else { 200 });
        assert!(began.elapsed() < Duration::from_secs(1), "{path}");
    }
}

/// Kubernetes: events have no watch cache.
#[tokio::test(start_paused = true)]
async fn events_at_a_future_resource_version_are_rejected_at_once() {
    let rig = Rig::new().await;
    let began = Instant::now();
    let refused = rig
        .get("/api/v1/namespaces/default/events?resourceVersion=1000000")
        .await
        .expect(504);
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(refused.body.at("details.retryAfterSeconds").is_null());
}

#[tokio::test(start_paused = true)]
async fn a_continue_token_expires_with_compaction_however_often_it_is_used() {
    const INTERVAL: Duration = Duration::from_secs(300);
    let rig = Rig::new().await;
    let registry = rig.server.registry().clone();
    tokio::spawn(async move { registry.compact_periodically(INTERVAL).await });
    for name in ["a", "b", "c", "d", "e"] {
        rig.make(name, "").await;
    }
    let first = rig.get(&format!("{CONFIG_MAPS}?limit=2")).await.expect(200);
    let next = format!(
        "{CONFIG_MAPS}?limit=2&continue={}",
        first.body.at("metadata.continue").str()
    );
    let exact = format!(
        "{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
        first.version()
    );
    rig.make("a2", "").await;
    // It is good for one interval at least.
    for _ in 0..9 {
        rig.get(&next).await.expect(200);
        tokio::time::sleep(INTERVAL / 10).await;
    }
    rig.make("c2", "").await;
    tokio::time::sleep(INTERVAL / 5).await;
    assert_eq!(
        rig.get(&next).await.expect(200).names(),
        ["c", "d"],
        "the first compaction only looks"
    );
    rig.get(&exact).await.expect(200);
    tokio::time::sleep(INTERVAL).await;
    let expired = rig.get(&next).await.expect(410);
    assert_eq!(expired.body["reason"].str(), "Expired");
    assert!(
        expired
            .message()
            .contains("use the continue token in this response"),
        "{}",
        expired.message()
    );
    let message = "The resourceVersion for the provided list is too old.";
    assert_eq!(rig.get(&exact).await.expect(410).message(), message);

    // Who can live with that goes on in the present.
    let onward = expired.body.at("metadata.continue").str().to_string();
    let page = rig
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={onward}"))
        .await
        .expect(200);
    assert_eq!(
        (
            page.names(),
            page.body.at("metadata.remainingItemCount").int()
        ),
        (vec!["c".into(), "c2".into()], 2)
    );
    let last = page.body.at("metadata.continue").str();
    let page = rig
        .get(&format!("{CONFIG_MAPS}?limit=2&continue={last}"))
        .await
        .expect(200);
    assert_eq!(page.names(), ["d", "e"]);
    assert_eq!(page.body.at("metadata.continue").str(), "");
}

#[tokio::test(start_paused = true)]
async fn without_an_interval_nothing_is_compacted() {
    let rig = Rig::new().await;
    let version = rig.make("a", "").await.version();
    rig.make("b", "").await;
    rig.server
        .registry()
        .compact_periodically(Duration::ZERO)
        .await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(rig.get(&exact).await.expect(200).names(), ["a"]);
}
