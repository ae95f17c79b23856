//! Which form of discovery does a client get? By its `Accept` header, as upstream negotiates.

use http_body_util::BodyExt as _;
use mizzen_apiserver::{Response, User};
use mizzen_object::proto;
use mizzen_value::json;

use crate::rig::Rig;

const AGGREGATED: &str = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn get(rig: &Rig, path: &str, headers: &[(&'static str, &str)]) -> Response {
    rig.send_as(User::master("admin"), headers, "GET", path, "")
        .await
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap())
        .unwrap_or_default()
}

async fn body(answer: Response) -> Vec<u8> {
    answer
        .into_body()
        .collect()
        .await
        .expect("bodies do not fail")
        .to_bytes()
        .to_vec()
}

#[tokio::test]
async fn aggregated_discovery_has_every_encoding_and_one_tag() {
    let rig = Rig::new().await;
    for path in ["/api", "/apis"] {
        let mut tags = Vec::new();
        for (encoding, start) in [
            (
                "application/json",
                &br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#[..],
            ),
            (
                "application/yaml",
                b"apiVersion: apidiscovery.k8s.io/v2\nitems:\n- ",
            ),
            (
                PROTOBUF,
                b"k8s\0\n/\n\x16apidiscovery.k8s.io/v2\x12\x15APIGroupDiscoveryList",
            ),
        ] {
            let accept = format!("{encoding};{AGGREGATED}");
            let answer = get(&rig, path, &[("accept", &accept)]).await;
            assert_eq!(
                (answer.status().as_u16(), header(&answer, "content-type")),
                (200, &*accept),
                "{path}"
            );
            assert_eq!(header(&answer, "vary"), "Accept", "{path}");
            assert_eq!(header(&answer, "cache-control"), "public", "{path}");
            tags.push(header(&answer, "etag").to_owned());
            let body = body(answer).await;
            assert!(
                body.starts_with(start),
                "{accept}: {:?}",
                String::from_utf8_lossy(&body)
            );
        }
        tags.dedup();
        assert_eq!(tags.len(), 1, "{path}");
        let accept = format!("application/yaml;{AGGREGATED}");
        let answer = get(
            &rig,
            path,
            &[("accept", &accept), ("if-none-match", &tags[0])],
        )
        .await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "content-type")),
            (304, "")
        );
        assert_eq!(
            (header(&answer, "etag"), header(&answer, "cache-control")),
            (&*tags[0], "public")
        );
        // Kubernetes: a tag is compared as a whole.
        let answer = get(&rig, path, &[("accept", &accept), ("if-none-match", "*")]).await;
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test]
async fn plain_discovery_is_for_clients_that_accept_nothing_else() {
    let rig = Rig::new().await;
    let aggregated = format!("application/json;{AGGREGATED}");
    for (path, accept, status, kind) in [
        (
            "/apis",
            format!("application/json,{aggregated};q=0.1"),
            200,
            "APIGroupDiscoveryList",
        ),
        (
            "/apis",
            format!("text/html,{aggregated};x=y;profile=nopeer"),
            200,
            "APIGroupDiscoveryList",
        ),
        (
            "/apis",
            format!("application/*;{AGGREGATED}"),
            200,
            "APIGroupDiscoveryList",
        ),
        ("/api", format!("application/*;{AGGREGATED}"), 406, "Status"),
        ("/api/", aggregated.clone(), 200, "APIGroupDiscoveryList"),
        // Kubernetes: here the aggregator has only the plain form.
        ("/apis/", aggregated.clone(), 406, "Status"),
        (
            "/apis/",
            format!("{aggregated},application/json"),
            200,
            "APIGroupList",
        ),
        ("/apis", aggregated.replace("g=", "G="), 406, "Status"),
        ("/apis", "*".into(), 200, "APIGroupList"),
        ("/api", "*".into(), 406, "Status"),
        ("/apis/apps", aggregated.clone(), 406, "Status"),
        (
            "/apis/apps/v1",
            "application/json;as=Table;v=v1;g=meta.k8s.io,*/*".into(),
            200,
            "APIResourceList",
        ),
    ] {
        let answer = get(&rig, path, &[("accept", &accept)]).await;
        let found = answer.status().as_u16();
        let body = json::parse(&body(answer).await).unwrap();
        assert_eq!(
            (found, body["kind"].str()),
            (status, kind),
            "{path} {accept}"
        );
    }
}

#[tokio::test]
async fn plain_discovery_is_also_protobuf() {
    let rig = Rig::new().await;
    let types = mizzen_kinds::catalog().schemas.types;
    for (path, kind) in [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/api/v1", "APIResourceList"),
        ("/apis/apps/v1", "APIResourceList"),
    ] {
        let answer = get(&rig, path, &[("accept", PROTOBUF)]).await;
        assert_eq!(header(&answer, "content-type"), PROTOBUF, "{path}");
        let bytes = body(answer).await;
        let object = proto::decode_object(&bytes).unwrap();
        let plain = rig.get(path).await.expect(200).body;
        assert_eq!(
            (&*object.api_version, &*object.kind),
            (plain["apiVersion"].str(), kind),
            "{path}"
        );
        let mut message = Vec::new();
        proto::encode_message(
            &types[format!("meta/v1.{kind}").as_str()],
            &plain,
            &mut message,
        );
        assert!(!message.is_empty() && object.raw == message, "{path}");
    }
}

#[tokio::test]
async fn documents_of_one_media_type_are_rejected_in_go_restfuls_words() {
    let rig = Rig::new().await;
    for (accept, status) in [
        ("application/json;as=x", 200),
        ("application/*", 406),
        ("*", 406),
        ("text/html,*/*;q=0.1", 200),
    ] {
        let answer = get(&rig, "/version", &[("accept", accept)]).await;
        assert_eq!(answer.status().as_u16(), status, "{accept}");
        if status == 406 {
            let refused = json::parse(&body(answer).await).unwrap();
            let message = "406: Not Acceptable\n\nAvailable representations: application/json";
            assert_eq!(refused["message"].str(), message, "{accept}");
        }
    }
}
