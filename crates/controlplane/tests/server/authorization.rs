//! Somebody else decides: what they are asked, what becomes of their answers, and of none.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mizzen_apiserver::{Options, User};
use mizzen_authorization::{Authorization, AuthorizationConfigurationError};
use mizzen_value::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, advance};

use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Reply, Rig};

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";
const RBAC: &str = "- {type: RBAC, name: rbac}\n";
const ALLOWED: &str = r#"{"status":{"allowed":true,"reason":"because"}}"#;
const SILENT: &str = r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":false,"reason":"who knows"}}"#;
const DENIED: &str = r#"{"status":{"allowed":false,"denied":true,"reason":"not you"}}"#;

fn jane() -> User {
    User {
        name: "jane".into(),
        groups: vec!["dev".into()],
        ..User::default()
    }
}

async fn list(rig: &Rig) -> Reply {
    rig.call_as(jane(), &[], "GET", CONFIG_MAPS, "").await
}

/// A directory with kubeconfig files.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.0.path().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// The kubeconfig file of a server.
    fn kubeconfig(&self, port: u16, authority: &str) -> PathBuf {
        let text = format!(
            r#"{{"current-context":"c","contexts":[{{"name":"c","context":{{"cluster":"a","user":"u"}}}}],
            "clusters":[{{"name":"a","cluster":{{"server":"https://127.0.0.1:{port}/authorize","certificate-authority-data":"{authority}"}}}}],
            "users":[{{"name":"u","user":{{"token":"secret"}}}}]}}"#
        );
        self.write("kubeconfig", &text)
    }

    /// A webhook that is asked; `more` are more of its fields.
    fn webhook(&self, kubeconfig: &std::path::Path, more: &str) -> String {
        let file = kubeconfig.display();
        let timeout = if more.contains("timeout") {
            ""
        } else {
            ", timeout: 3s"
        };
        let version = if more.contains("AccessReviewVersion: v1beta1") {
            ""
        } else {
            ", subjectAccessReviewVersion: v1"
        };
        format!(
            "- {{type: Webhook, name: other, webhook: {{connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {file}}}{timeout}{version}, {more}}}}}\n"
        )
    }
}

fn parse(entries: &str) -> Result<Authorization, AuthorizationConfigurationError> {
    Authorization::parse(format!("{HEAD}{entries}").as_bytes())
}

async fn rig(entries: &str) -> Rig {
    Rig::with(Options {
        authorization: parse(entries).unwrap(),
        ..Options::default()
    })
    .await
}

/// A server that asks a webhook, then roles.
async fn asking(peer: &Peer, more: &str) -> Rig {
    let files = Files::new();
    let kubeconfig = files.kubeconfig(peer.port, &peer.bundle());
    rig(&format!("{}{RBAC}", files.webhook(&kubeconfig, more))).await
}

fn question(peer: &Peer, at: usize) -> Value {
    json::parse(peer.seen()[at].body()).unwrap()
}

/// Lets virtual time pass while real answers come.
async fn let_time_pass(until: impl Fn() -> bool) {
    while !until() {
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
        advance(Duration::from_millis(50)).await;
    }
}

const POLICY: &str = "failurePolicy: NoOpinion";
const CLOSED: &str = "failurePolicy: Deny";

#[tokio::test]
async fn a_review_has_the_attributes_of_the_request() {
    let peer = Peer::answering(200, ALLOWED).await;
    let rig = asking(&peer, POLICY).await;
    let path = format!("{CONFIG_MAPS}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx");
    rig.call_as(jane(), &[], "GET", &path, "").await.expect(200);
    let request = &peer.seen()[0];
    assert_eq!(
        request.uri().path_and_query().unwrap().as_str(),
        "/authorize?timeout=3s"
    );
    assert_eq!(request.headers()["authorization"], "Bearer secret");
    assert_eq!(request.headers()["content-type"], "application/json");
    assert_eq!(
        String::from_utf8_lossy(request.body()),
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{},"spec":{"resourceAttributes":{"namespace":"default","verb":"list","version":"v1","resource":"configmaps","name":"x","fieldSelector":{"requirements":[{"key":"metadata.name","operator":"In","values":["x"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}},"user":"jane","groups":["dev"]},"status":{"allowed":false}}"#
    );
    rig.call_as(jane(), &[], "GET", "/metrics", "")
        .await
        .expect(200);
    let page = &question(&peer, 1)["spec"]["nonResourceAttributes"];
    assert_eq!(json::to_string(page), r#"{"path":"/metrics","verb":"get"}"#);
}

#[tokio::test]
async fn a_v1beta1_webhook_gets_the_groups() {
    let answer = r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","status":{"allowed":true}}"#;
    let peer = Peer::answering(200, answer).await;
    let rig = asking(
        &peer,
        "failurePolicy: NoOpinion, subjectAccessReviewVersion: v1beta1",
    )
    .await;
    list(&rig).await.expect(200);
    let asked = question(&peer, 0);
    assert_eq!(asked["apiVersion"].str(), "authorization.k8s.io/v1beta1");
    assert_eq!(asked["spec"]["group"].list().len(), 1);
}

#[tokio::test]
async fn masters_are_always_allowed() {
    let peer = Peer::answering(200, DENIED).await;
    let rig = asking(&peer, CLOSED).await;
    rig.get(CONFIG_MAPS).await.expect(200);
    assert!(peer.seen().is_empty());
}

#[tokio::test]
async fn a_denial_is_final_and_no_opinion_is_not() {
    let bind = async |rig: &Rig| {
        let role = r#"{"metadata":{"name":"r"},"rules":[{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}]}"#;
        rig.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
            .await
            .expect(201);
        let binding = r#"{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},
            "subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}]}"#;
        rig.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            binding,
        )
        .await
        .expect(201);
    };
    let (denying, silent) = (
        Peer::answering(200, DENIED).await,
        Peer::answering(200, SILENT).await,
    );
    let rig = asking(&denying, POLICY).await;
    bind(&rig).await;
    let refused = list(&rig).await.expect(403);
    assert!(
        refused
            .message()
            .ends_with("in the namespace \"default\": not you"),
        "{refused:?}"
    );
    let rig = asking(&silent, POLICY).await;
    let refused = list(&rig).await.expect(403);
    assert!(
        refused
            .message()
            .ends_with("in the namespace \"default\": who knows"),
        "{refused:?}"
    );
    bind(&rig).await;
    list(&rig).await.expect(200);
}

#[tokio::test]
async fn responses_are_cached_for_their_ttl_unless_the_review_is_too_long() {
    let peer = Peer::start(&["127.0.0.1"], |request| {
        let allowed = String::from_utf8_lossy(request.body()).contains("jane");
        Reaction::Reply(200, if allowed { ALLOWED } else { SILENT }.into())
    })
    .await;
    let rig = asking(
        &peer,
        "failurePolicy: NoOpinion, authorizedTTL: 10s, cacheUnauthorizedRequests: false",
    )
    .await;
    for _ in 0..3 {
        list(&rig).await.expect(200);
    }
    assert_eq!(peer.seen().len(), 1);
    let joe = User {
        name: "joe".into(),
        ..User::default()
    };
    for n_questions in 2..4 {
        rig.call_as(joe.clone(), &[], "GET", CONFIG_MAPS, "")
            .await
            .expect(403);
        assert_eq!(peer.seen().len(), n_questions);
    }
    let long = format!("{CONFIG_MAPS}/{}", "x".repeat(10_000));
    for n_questions in 4..6 {
        rig.call_as(jane(), &[], "GET", &long, "").await;
        assert_eq!(peer.seen().len(), n_questions);
    }
    tokio::time::pause();
    let awake = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await
        }
    });
    advance(Duration::from_secs(11)).await;
    list(&rig).await.expect(200);
    assert_eq!(peer.seen().len(), 6);
    awake.abort();
}

/// The response to jane when the webhook behaves so; `$` stands for its address.
async fn told(peer: &Peer, more: &str) -> (u16, String) {
    let reply = list(&asking(peer, more).await).await;
    let text = reply
        .body
        .as_str()
        .map_or_else(|| reply.message().to_owned(), str::to_owned);
    (
        reply.status,
        text.replace(&format!("127.0.0.1:{}", peer.port), "$"),
    )
}

#[track_caller]
fn check(told: (u16, String), problem: &str) {
    let expected =
        format!("Internal Server Error: \"/api/v1/namespaces/default/configmaps\": {problem}\n");
    assert_eq!(told, (500, expected));
}

#[tokio::test]
async fn an_invalid_response_is_an_error() {
    let nonsense = Peer::answering(200, "nonsense").await;
    let parse = "couldn't get version/kind; json parse error: invalid character 'o' in literal null (expecting 'u')";
    check(told(&nonsense, CLOSED).await, parse);
    check(told(&nonsense, POLICY).await, parse);
    let pod = Peer::answering(200, r#"{"apiVersion":"v1","kind":"Pod"}"#).await;
    check(
        told(&pod, CLOSED).await,
        "expected a SubjectAccessReview of authorization.k8s.io/v1, got the kind \"Pod\" of v1",
    );
    let both = Peer::answering(200, r#"{"status":{"allowed":true,"denied":true}}"#).await;
    check(
        told(&both, POLICY).await,
        "webhook subject access review returned both allow and deny response",
    );
    let text = Peer::answering(200, r#"{"status":{"allowed":"yes"}}"#).await;
    check(
        told(&text, POLICY).await,
        "json: cannot unmarshal string into Go struct field SubjectAccessReviewStatus.status.allowed of type bool",
    );
    let empty = Peer::answering(200, "").await;
    check(
        told(&empty, CLOSED).await,
        "0-length response with status code: 200 and content type: application/json",
    );
    let forbidden = Peer::answering(
        403,
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"go away"}"#,
    )
    .await;
    check(told(&forbidden, CLOSED).await, "go away");
}

#[tokio::test]
async fn an_unreachable_or_untrusted_webhook_fails() {
    let (peer, other) = (
        Peer::answering(200, ALLOWED).await,
        Peer::answering(200, ALLOWED).await,
    );
    let files = Files::new();
    let kubeconfig = files.kubeconfig(peer.port, &other.bundle());
    let server = rig(&files.webhook(&kubeconfig, CLOSED)).await;
    let reply = list(&server).await.expect(500);
    let problem = "tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \
                   \"x509: ECDSA verification failure\" while trying to verify candidate authority certificate \"rcgen self \
                   signed cert\")\n";
    assert!(reply.body.str().ends_with(problem), "{reply:?}");
    let port = peer.port;
    drop(peer);
    let kubeconfig = files.kubeconfig(port, &other.bundle());
    let server = rig(&files.webhook(&kubeconfig, POLICY)).await;
    let reply = list(&server).await.expect(500);
    let problem = format!(
        "Post &#34;https://127.0.0.1:{port}/authorize?timeout=3s&#34;: dial tcp 127.0.0.1:{port}: connect: connection refused\n"
    );
    assert!(
        reply.body.str().ends_with(&problem.replace("&#34;", "\"")),
        "{reply:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_times_out() {
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Hang).await;
    for policy in [CLOSED, POLICY] {
        let rig = asking(&peer, policy).await;
        let started = Instant::now();
        let reply = list(&rig).await.expect(500);
        assert!(
            reply.body.str().ends_with(": context deadline exceeded\n"),
            "{reply:?}"
        );
        assert_eq!(started.elapsed().as_secs(), 3);
        let metrics = rig.get("/metrics").await.expect(200);
        let counted = "apiserver_authorization_webhook_evaluations_total{name=\"other\",result=\"timeout\"} 1";
        assert!(metrics.body.str().contains(counted), "{metrics:?}");
        let open = "apiserver_authorization_webhook_evaluations_fail_open_total{name=\"other\",result=\"timeout\"} 1";
        assert_eq!(metrics.body.str().contains(open), policy == POLICY);
    }
}

#[tokio::test]
async fn a_slow_webhook_delays_no_other_request() {
    let peer = Peer::start(&["127.0.0.1"], |request| {
        let slow = String::from_utf8_lossy(request.body()).contains("jane");
        if slow {
            Reaction::Hang
        } else {
            Reaction::Reply(200, ALLOWED.into())
        }
    })
    .await;
    let server = asking(&peer, "failurePolicy: Deny, timeout: 30s").await;
    // More than one connection of HTTP/2 would carry.
    let waiting: Vec<_> = (0..300)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move { list(&server).await })
        })
        .collect();
    while peer.seen().len() < 300 {
        tokio::task::yield_now().await;
    }
    let joe = User {
        name: "joe".into(),
        ..User::default()
    };
    server
        .call_as(joe, &[], "GET", CONFIG_MAPS, "")
        .await
        .expect(200);
    server.get(CONFIG_MAPS).await.expect(200);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn transient_failures_are_retried_with_back_off() {
    tokio::time::pause();
    let n_failures = Arc::new(AtomicUsize::new(3));
    let left = n_failures.clone();
    let peer = Peer::start(&["127.0.0.1"], move |_| {
        let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        });
        if fails.is_ok() {
            Reaction::Reply(500, "boo".into())
        } else {
            Reaction::Reply(200, ALLOWED.into())
        }
    })
    .await;
    let awake = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await
        }
    });
    let server = asking(
        &peer,
        "failurePolicy: NoOpinion, timeout: 30s, cacheAuthorizedRequests: false",
    )
    .await;
    for (failures, code, n_asked) in [(3, 200, 4), (9, 500, 5)] {
        n_failures.store(failures, Ordering::Relaxed);
        let (started, before) = (Instant::now(), peer.seen().len());
        let task = {
            let server = server.clone();
            tokio::spawn(async move { list(&server).await })
        };
        let_time_pass(|| task.is_finished()).await;
        task.await.unwrap().expect(code);
        assert_eq!(peer.seen().len() - before, n_asked);
        // 500 ms, then half as long again each time, and up to a fifth more. Time also passes while a response is on its
        // way, so that only the least is exact.
        let took = started.elapsed().as_millis();
        assert!(took > if n_asked == 4 { 2_375 } else { 4_062 }, "{took}");
    }
    awake.abort();
}

#[tokio::test]
async fn match_conditions_limit_the_requests_of_a_webhook() {
    let peer = Peer::answering(200, DENIED).await;
    let conditions = |expressions: &[&str]| {
        let shown: Vec<String> = expressions
            .iter()
            .map(|text| format!("{{expression: \"{text}\"}}"))
            .collect();
        format!(
            ", matchConditionSubjectAccessReviewVersion: v1, matchConditions: [{}]",
            shown.join(", ")
        )
    };
    let asked = async |policy: &str, expressions: &[&str]| {
        let before = peer.seen().len();
        let reply = told(&peer, &format!("{policy}{}", conditions(expressions))).await;
        (reply.0, peer.seen().len() - before)
    };
    let resource = "has(request.resourceAttributes)";
    assert_eq!(
        asked(
            CLOSED,
            &[
                resource,
                "request.user == 'jane' && 'dev' in request.groups"
            ]
        )
        .await,
        (403, 1)
    );
    assert_eq!(
        asked(
            CLOSED,
            &[resource, "request.resourceAttributes.namespace == 'other'"]
        )
        .await,
        (403, 0)
    );
    assert_eq!(
        asked(
            CLOSED,
            &[
                "request.nonResourceAttributes.path == '/'",
                "request.user == 'joe'"
            ]
        )
        .await,
        (403, 0)
    );
    assert_eq!(
        asked(POLICY, &["request.extra.size() == 0 && request.uid == ''"]).await,
        (403, 1)
    );
    assert_eq!(
        asked(CLOSED, &["!has(request.resourceAttributes.labelSelector)"]).await,
        (403, 1)
    );
    let broken = "request.nonResourceAttributes.path == '/'";
    for policy in [CLOSED, POLICY] {
        let reply = told(&peer, &format!("{policy}{}", conditions(&[broken]))).await;
        check(
            reply,
            &format!(
                "cel evaluation error: expression '{broken}' resulted in error: no such key: nonResourceAttributes"
            ),
        );
    }
}

#[tokio::test]
async fn a_review_has_the_reason_and_the_errors_of_a_webhook() {
    let review = async |server: &Rig| {
        let body = r#"{"spec":{"user":"jane","resourceAttributes":{"verb":"list","resource":"pods",
            "fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"Exists"}]}}}}"#;
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        json::to_string(&server.post(path, body).await.expect(201).body["status"])
    };
    let partially = "spec.resourceAttributes.fieldSelector partially ignored due to parse error";
    let peer = Peer::answering(200, DENIED).await;
    let said = review(&asking(&peer, POLICY).await).await;
    assert_eq!(
        said,
        format!(
            r#"{{"allowed":false,"denied":true,"reason":"not you","evaluationError":"{partially}"}}"#
        )
    );
    let asked = &question(&peer, 0)["spec"]["resourceAttributes"];
    assert_eq!(
        json::to_string(asked),
        r#"{"verb":"list","version":"*","resource":"pods","fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}}"#
    );
    let broken = Peer::answering(404, "").await;
    let server = asking(&broken, POLICY).await;
    let problem = "the server could not find the requested resource";
    assert_eq!(
        review(&server).await,
        format!(r#"{{"allowed":false,"evaluationError":"{problem}; {partially}"}}"#)
    );
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = server
        .call_as(
            jane(),
            &[],
            "POST",
            path,
            r#"{"spec":{"namespace":"default"}}"#,
        )
        .await;
    // The webhook does not answer the review of jane's own request either.
    rules.expect(500);
    let rules = server
        .post(path, r#"{"spec":{"namespace":"default"}}"#)
        .await
        .expect(201);
    assert_eq!(
        json::to_string(&rules.body["status"]),
        r#"{"resourceRules":[],"nonResourceRules":[],"incomplete":true,"evaluationError":"webhook authorizer does not support user rule resolution"}"#
    );
}

#[tokio::test(start_paused = true)]
async fn always_allow_and_always_deny_ignore_the_request() {
    let allowing = rig("- {type: AlwaysAllow, name: alwaysallow}").await;
    list(&allowing).await.expect(200);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = allowing
        .call_as(
            jane(),
            &[],
            "POST",
            path,
            r#"{"spec":{"namespace":"default"}}"#,
        )
        .await;
    assert_eq!(
        json::to_string(&rules.expect(201).body["status"]),
        r#"{"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}],"incomplete":false}"#
    );
    let metrics = allowing.get("/metrics").await.expect(200);
    let counted = "apiserver_authorization_decisions_total{decision=\"allowed\",name=\"alwaysallow\",type=\"AlwaysAllow\"} 2";
    assert!(metrics.body.str().contains(counted), "{metrics:?}");
    let refused = list(&rig("- {type: AlwaysDeny, name: alwaysdeny}").await)
        .await
        .expect(403);
    assert!(
        refused.message().ends_with(": Everything is forbidden."),
        "{refused:?}"
    );
    list(
        &rig("- {type: AlwaysDeny, name: alwaysdeny}\n- {type: AlwaysAllow, name: alwaysallow}")
            .await,
    )
    .await
    .expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_changed_configuration_file_is_reloaded_if_it_is_valid() {
    let files = Files::new();
    let text = format!("{HEAD}{RBAC}");
    let file = files.write("authorization", &text);
    let server = rig(RBAC).await;
    let following = server.clone();
    let task = tokio::spawn(async move {
        following
            .server
            .follow_authorization(&file, text.into())
            .await;
    });
    list(&server).await.expect(403);
    let becomes = async |entries: &str, code: u16| {
        files.write("authorization", entries);
        tokio::time::sleep(Duration::from_secs(6)).await;
        list(&server).await.expect(code);
    };
    let open = "- {type: AlwaysAllow, name: alwaysallow}\n";
    becomes("}{", 403).await;
    becomes(&format!("{HEAD}{RBAC}{open}"), 200).await;
    becomes("", 200).await;
    becomes(&format!("{HEAD}{RBAC}- {{type: Nobody, name: x}}"), 200).await;
    becomes(&format!("{HEAD}{open}"), 200).await;
    fs::remove_file(files.0.path().join("authorization")).unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    list(&server).await.expect(200);
    becomes(&format!("{HEAD}{RBAC}"), 403).await;
    let metrics = server.get("/metrics").await.expect(200);
    let counted = |status: &str| {
        let name = "apiserver_authorization_config_controller_automatic_reloads_total";
        let head = format!("{name}{{apiserver_id_hash=\"\",status=\"{status}\"}} ");
        let line = metrics
            .body
            .str()
            .lines()
            .find_map(|line| line.strip_prefix(&head).map(str::to_owned));
        line.unwrap_or_default().parse::<u64>().unwrap()
    };
    assert_eq!(counted("success"), 2);
    assert!(counted("failure") >= 5);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn impersonation_is_bounded_by_the_request_deadline() {
    let peer = Peer::start(&["127.0.0.1"], |_| Reaction::Hang).await;
    let files = Files::new();
    let kubeconfig = files.kubeconfig(peer.port, &peer.bundle());
    let authorization =
        parse(&files.webhook(&kubeconfig, "failurePolicy: Deny, timeout: 30s")).unwrap();
    let server = Rig::with(Options {
        authorization,
        request_timeout: 10,
        ..Options::default()
    })
    .await;
    let started = Instant::now();
    server
        .call_as(
            jane(),
            &[("impersonate-user", "joe")],
            "GET",
            CONFIG_MAPS,
            "",
        )
        .await
        .expect(504);
    assert_eq!(started.elapsed().as_secs(), 10);
}
