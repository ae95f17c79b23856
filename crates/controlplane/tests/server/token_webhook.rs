//! Tokens that a webhook knows, and webhooks that are down, slow, or talk nonsense.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use mizzen_apiserver::Options;
use mizzen_authentication::ServiceAccountTokens;
use mizzen_authentication::{Authentication, ReviewVersion, TokenWebhook, WebhookOptions};
use mizzen_registry::Store;
use mizzen_value::{Value, json, value};
use tokio::time::Instant;

use crate::peer::{Peer, Reaction};
use crate::rig::{Rig, registry};

const JANE: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"jane","uid":"7","groups":["dev"],"extra":{"a.b/c":["d"]}}}}"#;
const NOBODY: &str = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":false}}"#;

/// A server that asks a webhook.
async fn gate(peer: &Peer) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let text = format!(
        "current-context: a
contexts: [{{name: a, context: {{cluster: b, user: c}}}}]
clusters: [{{name: b, cluster: {{server: 'https://127.0.0.1:{}/review', certificate-authority-data: {}}}}}]
users: [{{name: c, user: {{token: ours}}}}]
",
        peer.port,
        peer.bundle()
    );
    std::fs::write(&file, text).unwrap();
    let store = Store::in_memory(Default::default());
    let options = WebhookOptions {
        version: ReviewVersion::V1,
        cache_ttl: Duration::from_secs(120),
        audiences: ServiceAccountTokens::default().audiences().to_vec(),
    };
    let webhook = TokenWebhook::load(&file, &registry(store.clone()), options).unwrap();
    let authentication = Authentication {
        authenticators: vec![Arc::new(webhook)],
        ..Authentication::default()
    };
    Rig::on(
        store,
        Options {
            authentication,
            ..Options::default()
        },
    )
    .await
}

/// What a TokenReview says of a token.
async fn review(rig: &Rig, token: &str) -> Value {
    let body = json::to_string(&value!({ "spec": { "token": token } }));
    let review = rig
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &body)
        .await
        .expect(201);
    review.body["status"].clone()
}

/// The response code to a token. Its user has no permissions, so 403 means that it is authenticated.
async fn code(rig: &Rig, token: &str) -> u16 {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::AUTHORIZATION,
        format!("Bearer {token}").parse().unwrap(),
    );
    let uri = "/api/v1/secrets".parse().unwrap();
    rig.server
        .call(None, Method::GET, uri, headers, Bytes::new())
        .await
        .status()
        .as_u16()
}

#[tokio::test]
async fn a_webhook_authenticates_a_token() {
    let peer = Peer::answering(200, JANE).await;
    let rig = gate(&peer).await;
    let status = review(&rig, "swordfish").await;
    let expected = r#"{"username":"jane","uid":"7","groups":["dev","system:authenticated"],"extra":{"a.b/c":["d"]}}"#;
    assert_eq!(json::to_string(&status["user"]), expected);
    let asked = &peer.seen()[0];
    assert_eq!(asked.uri().path(), "/review");
    assert_eq!(asked.headers()["authorization"], "Bearer ours");
    let question = json::parse(asked.body()).unwrap();
    assert_eq!(question["apiVersion"].str(), "authentication.k8s.io/v1");
    let spec =
        r#"{"token":"swordfish","audiences":["https://kubernetes.default.svc.cluster.local"]}"#;
    assert_eq!(json::to_string(&question["spec"]), spec);
    assert_eq!(json::to_string(&question["metadata"]), "{}");
}

#[tokio::test]
async fn responses_are_cached_whether_authenticated_or_not() {
    for (answer, expected) in [(JANE, 403), (NOBODY, 401)] {
        let peer = Peer::answering(200, answer).await;
        let rig = gate(&peer).await;
        for _ in 0..3 {
            assert_eq!(code(&rig, "swordfish").await, expected);
        }
        assert_eq!(peer.seen().len(), 1);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(120)).await;
        tokio::time::resume();
        assert_eq!(code(&rig, "swordfish").await, expected);
        assert_eq!(peer.seen().len(), 2);
    }
}

#[tokio::test]
async fn an_invalid_review_authenticates_no_user_and_is_not_cached() {
    let answers = [
        "<html>",
        "{}",
        r#"{"apiVersion":"v1","kind":"Status","status":{"authenticated":true,"user":{"username":"jane"}}}"#,
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true}}"#,
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"error":"who?"}}"#,
    ];
    for answer in answers {
        let peer = Peer::answering(200, answer).await;
        let rig = gate(&peer).await;
        assert_eq!(
            (code(&rig, "t").await, code(&rig, "t").await),
            (401, 401),
            "{answer}"
        );
        assert_eq!(peer.seen().len(), 2, "{answer}");
    }
    let peer = Peer::start(&["127.0.0.1"], |_| {
        Reaction::Reply(200, " ".repeat(2_000_000))
    })
    .await;
    assert_eq!(code(&gate(&peer).await, "t").await, 401);
    let peer = Peer::answering(403, JANE).await;
    assert_eq!(
        (code(&gate(&peer).await, "t").await, peer.seen().len()),
        (401, 1)
    );
}

#[tokio::test]
async fn an_unreachable_webhook_authenticates_no_user() {
    let peer = Peer::answering(200, JANE).await;
    let (rig, port) = (gate(&peer).await, peer.port);
    drop(peer);
    let status = review(&rig, "t").await;
    let expected = format!(
        "[invalid bearer token, Post \"https://127.0.0.1:{port}/review\": dial tcp 127.0.0.1:{port}: connect: connection refused]"
    );
    assert_eq!(
        (status["authenticated"].bool(), status["error"].str()),
        (false, expected.as_str())
    );
    assert_eq!(code(&rig, "t").await, 401);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_webhook_times_out() {
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Hang).await;
    let rig = gate(&peer).await;
    let began = Instant::now();
    assert_eq!(code(&rig, "t").await, 401);
    assert!(
        began.elapsed() <= Duration::from_secs(31),
        "{:?}",
        began.elapsed()
    );
}

/// Advances time in small steps until the webhook got so many reviews. Between steps all tasks run.
async fn pass_until(peer: &Peer, n_requests: usize) -> Duration {
    let began = Instant::now();
    while peer.seen().len() < n_requests {
        assert!(
            began.elapsed() < Duration::from_secs(25),
            "the webhook is not asked again"
        );
        tokio::time::advance(Duration::from_millis(50)).await;
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
    }
    began.elapsed()
}

/// Asks with a token while time stands still, but for what [`pass_until`] lets pass.
async fn insist(failures: usize, answer: &'static str) -> (Vec<Duration>, u16) {
    let n_asked = AtomicUsize::new(0);
    let peer = Peer::start(&["127.0.0.1"], move |_| {
        match n_asked.fetch_add(1, Ordering::Relaxed) {
            early if early < failures => Reaction::Reply(500, "busy".into()),
            _ => Reaction::Reply(200, answer.into()),
        }
    })
    .await;
    let rig = gate(&peer).await;
    tokio::time::pause();
    // Paused time does not advance by itself while a task is busy.
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let asking = tokio::spawn(async move { code(&rig, "t").await });
    let mut pauses = Vec::new();
    for attempt in 1..=(failures + 1).min(5) {
        pauses.push(pass_until(&peer, attempt).await);
    }
    let code = asking.await.unwrap();
    busy.abort();
    assert_eq!(peer.seen().len(), (failures + 1).min(5));
    (pauses, code)
}

#[tokio::test]
async fn failed_reviews_are_retried_with_back_off() {
    let (pauses, code) = insist(3, JANE).await;
    assert_eq!(code, 403);
    assert!(
        pauses[1] >= Duration::from_millis(450) && pauses[3] >= Duration::from_millis(1000),
        "{pauses:?}"
    );
}

#[tokio::test]
async fn retries_of_a_failing_webhook_are_bounded() {
    assert_eq!(insist(100, JANE).await.1, 401);
}

#[tokio::test]
async fn concurrent_requests_with_one_token_share_a_review() {
    let peer = Peer::answering(200, JANE).await;
    let rig = gate(&peer).await;
    let many = (0..20).map(|_| {
        let rig = rig.clone();
        tokio::spawn(async move { code(&rig, "t").await })
    });
    for asking in many.collect::<Vec<_>>() {
        assert_eq!(asking.await.unwrap(), 403);
    }
    assert_eq!(peer.seen().len(), 1);
}
