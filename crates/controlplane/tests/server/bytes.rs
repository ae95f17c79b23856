//! Answers byte by byte: where a newline stands and where none does, and how a connection ends.

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use mizzen_apiserver::User;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::crd::{DEFINITIONS, FOOS, foo};
use crate::network::Network;
use crate::rig::{CONFIG_MAPS, Rig};

async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.make("a", "").await;
    let definition = r#"{"metadata":{"name":"foos.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"foos","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    rig.post(DEFINITIONS, definition).await.expect(201);
    rig.post(FOOS, &foo("v1", "a", "{}")).await.expect(201);
    rig
}

/// The body of an answer, whatever its status.
async fn body(rig: &Rig, accept: &str, path: &str) -> String {
    let mut headers = HeaderMap::new();
    if !accept.is_empty() {
        headers.insert("accept", accept.parse().unwrap());
    }
    let (user, uri) = (User::master("admin"), path.parse().unwrap());
    let answer = rig
        .server
        .call(Some(user), Method::GET, uri, headers, Bytes::new())
        .await;
    let bytes = answer
        .into_body()
        .collect()
        .await
        .expect("bodies do not fail")
        .to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn compact_json_ends_with_one_newline_and_readable_json_with_none() {
    let rig = rig().await;
    let (one, foo) = (format!("{CONFIG_MAPS}/a"), format!("{FOOS}/a"));
    let missing = format!("{CONFIG_MAPS}/none");
    for (accept, path) in [
        ("", &*one),
        ("application/json", &one),
        ("", CONFIG_MAPS),
        ("", &foo),
        ("", FOOS),
        ("", "/api/v1/namespaces/none/configmaps"),
        (TABLE, &one),
        (TABLE, CONFIG_MAPS),
        (TABLE, &foo),
        (METADATA, &one),
        (METADATA_LIST, CONFIG_MAPS),
        ("", &missing),
        ("", "/apis/apps/v1/nothing"),
        ("", "/api"),
        ("", "/apis"),
        ("", "/apis/apps"),
        ("", "/api/v1"),
        ("", "/apis/apps/v1"),
        ("", "/apis/example.com/v1"),
        (DISCOVERY, "/apis"),
        (DISCOVERY, "/api"),
    ] {
        let text = body(&rig, accept, path).await;
        let line = text
            .strip_suffix('\n')
            .unwrap_or_else(|| panic!("{accept} {path}: {text:?}"));
        assert!(
            line.ends_with('}') && !line.contains('\n'),
            "{accept} {path}: {text:?}"
        );
        let text = body(&rig, accept, &format!("{path}?pretty=1")).await;
        assert!(
            text.starts_with("{\n  \"") && text.ends_with("\n}"),
            "{accept} {path}: {text:?}"
        );
    }
}

#[tokio::test]
async fn documents_that_are_no_objects_are_always_indented() {
    let rig = rig().await;
    for path in ["/version", "/"] {
        let text = body(&rig, "", path).await;
        assert!(
            text.starts_with("{\n  \"") && text.ends_with("\n}"),
            "{path}: {text:?}"
        );
    }
    let any = body(&rig, "text/plain", "/").await;
    assert!(any.starts_with("{\n  \"paths\": ["), "{any:?}");
    // A Status for a client that accepts no form that the server has.
    for accept in ["text/plain", TABLE] {
        let text = body(&rig, accept, "/api/v1/namespaces/default/configmaps/none").await;
        assert!(
            text.starts_with("{\n  \"kind\": \"Status\"") && text.ends_with("\n}"),
            "{accept}: {text:?}"
        );
    }
    let refused = body(&rig, "application/*", "/version").await;
    let expected = "406: Not Acceptable\\n\\nAvailable representations: application/json\"";
    assert!(refused.contains(expected), "{refused}");
}

#[tokio::test]
async fn other_encodings_end_as_upstreams_do() {
    let rig = rig().await;
    let one = format!("{CONFIG_MAPS}/a");
    for path in [&*one, CONFIG_MAPS, "/apis/apps"] {
        let yaml = body(&rig, "application/yaml", path).await;
        assert!(yaml.ends_with('\n') && !yaml.ends_with("\n\n"), "{yaml:?}");
    }
    let proto = body(&rig, "application/vnd.kubernetes.protobuf", &one).await;
    assert!(
        proto.starts_with("k8s\0") && !proto.ends_with('\n'),
        "{proto:?}"
    );
    assert_eq!(body(&rig, "", "/healthz").await, "ok");
    for path in ["/openapi/v3", "/openapi/v3/api/v1"] {
        assert!(body(&rig, "", path).await.ends_with('}'), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_an_event_a_line() {
    let rig = rig().await;
    for (accept, collection) in [
        ("", CONFIG_MAPS),
        ("", FOOS),
        (TABLE, CONFIG_MAPS),
        (METADATA, CONFIG_MAPS),
    ] {
        let text = body(
            &rig,
            accept,
            &format!("{collection}?watch=1&timeoutSeconds=1&pretty=1"),
        )
        .await;
        let line = text.strip_suffix('\n').unwrap();
        assert!(
            line.starts_with(r#"{"type":"ADDED","object":{"#) && !line.contains('\n'),
            "{text:?}"
        );
    }
}

/// Reads a connection to its end, which must not be a cut.
async fn expect_end(mut connection: impl tokio::io::AsyncRead + Unpin) {
    let mut rest = Vec::new();
    connection
        .read_to_end(&mut rest)
        .await
        .expect("close_notify");
}

#[tokio::test]
async fn a_stream_that_its_client_ends_is_closed_in_tls_too() {
    let rig = rig().await;
    let network = Network::start(&rig.server).await;
    let mut connection = network.connect().await;
    let request = format!("GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nhost: x\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 15];
    connection.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    connection.shutdown().await.unwrap();
    expect_end(connection).await;

    let mut connection = network.dial("h2").await;
    connection
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut settings = [0; 9];
    connection.read_exact(&mut settings).await.unwrap();
    connection.shutdown().await.unwrap();
    expect_end(connection).await;

    let mut connection = network.connect().await;
    connection.write_all(b"rubbish\r\n\r\n").await.unwrap();
    expect_end(connection).await;
}
