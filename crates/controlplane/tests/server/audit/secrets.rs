//! The level Metadata has no request and response objects, and no level has credentials.

use mizzen_apiserver::User;
use mizzen_authentication::{Authentication, StaticTokens};

use super::{ALL, Audited, METADATA, Options};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// All that can be done with a secret, each with another that must not be seen: `hunter-N`, or its base64.
async fn handle_secrets(audited: &Audited) {
    let rig = &audited.rig;
    let one = format!("{SECRETS}/one");
    rig.post(
        SECRETS,
        r#"{"metadata":{"name":"one","annotations":{"a":"hunter-0"}},"stringData":{"p":"hunter-1"}}"#,
    )
    .await
    .expect(201);
    rig.put(
        &one,
        r#"{"metadata":{"name":"one"},"data":{"p":"aHVudGVyLTI="}}"#,
    )
    .await
    .expect(200);
    rig.patch(&one, r#"{"stringData":{"p":"hunter-3"}}"#)
        .await
        .expect(200);
    let applied = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"two"},"stringData":{"p":"hunter-4"}}"#;
    rig.apply(&format!("{SECRETS}/two"), "m", applied)
        .await
        .expect(201);
    rig.get(&one).await.expect(200);
    rig.get(SECRETS).await.expect(200);
    let mut watch = rig
        .watch(&format!("{SECRETS}?watch=true&resourceVersion=0"))
        .await;
    assert_eq!(watch.next_name().await, "ADDED one");
    drop(watch);
    for form in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
        rig.call_as(User::master("admin"), &[("accept", form)], "GET", &one, "")
            .await
            .expect(200);
    }
    let review = r#"{"spec":{"token":"hunter-5"}}"#;
    rig.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        .await
        .expect(201);
    rig.delete(&one, r#"{"gracePeriodSeconds":0}"#)
        .await
        .expect(200);
    rig.delete(SECRETS, "").await.expect(200);
}

/// Base64 of `hunter-`, wherever in a group of three bytes it begins.
const ENCODED: [&str; 3] = ["aHVudGVyL", "h1bnRlci", "odW50ZXIt"];

fn shows_secrets(text: &str) -> bool {
    text.contains("hunter-") || ENCODED.iter().any(|encoded| text.contains(encoded))
}

#[tokio::test(start_paused = true)]
async fn the_level_metadata_has_no_bodies() {
    let audited = Audited::by(METADATA).await;
    handle_secrets(&audited).await;
    let text = audited.text();
    assert_eq!(text.matches("\"stage\":\"ResponseComplete\"").count(), 12);
    assert!(!shows_secrets(&text), "{text}");
    assert!(!text.contains("requestObject") && !text.contains("responseObject"));
}

/// The test above can fail: the same at a level that tells all.
#[tokio::test(start_paused = true)]
async fn only_the_policy_sets_the_level() {
    let audited = Audited::by(ALL).await;
    handle_secrets(&audited).await;
    let text = audited.text();
    assert!(
        [0, 3, 4, 5]
            .iter()
            .all(|n| text.contains(&format!("hunter-{n}"))),
        "{text}"
    );
    assert!(text.contains("aHVudGVyLTE=") && text.contains("aHVudGVyLTI="));
    let watched = text
        .lines()
        .filter(|line| line.contains("\"verb\":\"watch\""));
    assert!(
        !watched.into_iter().any(shows_secrets),
        "what a watch shows is never told"
    );
}

#[tokio::test(start_paused = true)]
async fn the_level_request_has_no_response_objects() {
    let audited = Audited::by("{level: Request}").await;
    handle_secrets(&audited).await;
    assert!(!audited.text().contains("responseObject"));
}

#[tokio::test(start_paused = true)]
async fn credentials_are_never_audited() {
    let tokens = StaticTokens::parse("hunter-good,jane,1,\"system:masters\"\n").unwrap();
    let options = Options {
        authentication: Authentication {
            tokens,
            ..Default::default()
        },
        ..Options::default()
    };
    let audited = Audited::with(ALL, |_| {}, options).await;
    for (header, code) in [
        ("Bearer hunter-good", 200),
        ("Bearer hunter-bad", 401),
        ("Basic aHVudGVyLTI=", 403),
    ] {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        headers.insert("cookie", "hunter-cookie".parse().unwrap());
        let answer = audited
            .rig
            .server
            .call(
                None,
                http::Method::GET,
                SECRETS.parse().unwrap(),
                headers,
                "".into(),
            )
            .await;
        assert_eq!(answer.status(), code);
    }
    let text = audited.text();
    assert!(text.lines().count() >= 5);
    assert!(!shows_secrets(&text), "{text}");
}
