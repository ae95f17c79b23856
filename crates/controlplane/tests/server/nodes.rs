//! What nodes may do: what has to do with what runs on them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_apiserver::User;
use mizzen_authorization::{Authorization, AuthorizerConfiguration, AuthorizerType};
use mizzen_controlplane::{Options, Plugins};
use mizzen_registry::{Store, StoreOptions, WindowLimits};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::access::Echo;
use crate::rig::{Reply, Rig};

const CASES: &str = include_str!("nodes.cases");
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn as_node(rig: &Rig, node: &str, method: &str, path: &str, body: &str) -> Reply {
    rig.call_as(User::node(node), &[], method, path, body).await
}

fn options() -> Options {
    let mut plugins = Plugins::alone();
    plugins.enable("NodeRestriction").unwrap();
    Options {
        plugins,
        ..mizzen_apiserver::Options {
            signer: Some(Arc::new(Echo)),
            ..Default::default()
        }
        .into()
    }
}

/// A pod on a node that uses a secret.
fn pod(name: &str, node: &str, secret: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}","containers":[{{"name":"c","image":"i"}}],"volumes":[{{"name":"v","secret":{{"secretName":"{secret}"}}}}]}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn the_node_authorizer_decides_as_upstream_does() {
    let rig = Rig::with(options()).await;
    rig.post(
        "/api/v1/namespaces",
        r#"{"metadata":{"name":"kube-node-lease"}}"#,
    )
    .await
    .expect(201);
    let mut lines = CASES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let (Some(asked), Some(expected)) = (lines.next(), lines.next()) {
        assert_eq!(answer(&rig, asked).await, expected.trim_start(), "{asked}");
    }
}

/// The code of an answer, and the message of a refusal.
async fn answer(rig: &Rig, asked: &str) -> String {
    let mut words = asked.splitn(4, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (who, method, path, body) = (word(), word(), word(), word());
    let user = match who {
        "admin" => User::master("admin"),
        "n0" => User::node(""),
        node => User::node(node),
    };
    let body = filled(rig, body).await;
    let reply = rig.call_as(user, &[], method, path, &body).await;
    let message = if reply.status < 400 {
        ""
    } else {
        reply.message()
    };
    let uid = rig
        .get("/api/v1/nodes/n1")
        .await
        .body
        .at("metadata.uid")
        .str()
        .to_owned();
    let message = if uid.is_empty() {
        message.to_owned()
    } else {
        message.replace(&uid, "UID")
    };
    format!("{} {message}", reply.status).trim_end().to_owned()
}

/// A body with `{uid PATH}` and `{csr NAME}` filled in.
async fn filled(rig: &Rig, body: &str) -> String {
    let mut filled = body.to_owned();
    while let Some(start) = filled.find("{uid ").or_else(|| filled.find("{csr ")) {
        let end = start + filled[start..].find('}').unwrap();
        let (kind, what) = filled[start + 1..end].split_once(' ').unwrap();
        let text = match kind {
            "uid" => rig.get(what).await.body.at("metadata.uid").str().to_owned(),
            _ => certificate_request(what),
        };
        filled.replace_range(start..=end, &text);
    }
    filled
}

fn certificate_request(name: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap();
    STANDARD.encode(request.pem().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_may_read_for_a_pod_from_its_creation_until_its_deletion() {
    let rig = Rig::with(options()).await;
    rig.post(SECRETS, r#"{"metadata":{"name":"s"}}"#)
        .await
        .expect(201);
    let secret = format!("{SECRETS}/s");
    for _ in 0..20 {
        as_node(&rig, "n1", "GET", &secret, "").await.expect(403);
        rig.post(PODS, &pod("p", "n1", "s")).await.expect(201);
        as_node(&rig, "n1", "GET", &secret, "").await.expect(200);
        as_node(&rig, "n2", "GET", &secret, "").await.expect(403);
        rig.post(PODS, &pod("q", "n1", "s")).await.expect(201);
        rig.delete(&format!("{PODS}/p?gracePeriodSeconds=0"), "")
            .await
            .expect(200);
        as_node(&rig, "n1", "GET", &secret, "").await.expect(200);
        rig.delete(&format!("{PODS}/q?gracePeriodSeconds=0"), "")
            .await
            .expect(200);
    }
    as_node(&rig, "n1", "GET", &secret, "").await.expect(403);
}

#[tokio::test(start_paused = true)]
async fn an_index_behind_the_watch_window_is_rebuilt() {
    let window = WindowLimits {
        min_events: 1,
        max_events: 4,
        ..WindowLimits::default()
    };
    let store = Store::in_memory(StoreOptions {
        window,
        ..StoreOptions::default()
    });
    let rig = Rig::on(store, options()).await;
    for name in ["old", "new"] {
        rig.post(SECRETS, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))
            .await
            .expect(201);
    }
    rig.post(PODS, &pod("old", "n1", "old")).await.expect(201);
    as_node(&rig, "n1", "GET", &format!("{SECRETS}/old"), "")
        .await
        .expect(200);
    rig.delete(&format!("{PODS}/old?gracePeriodSeconds=0"), "")
        .await
        .expect(200);
    rig.post(PODS, &pod("new", "n1", "new")).await.expect(201);
    for n in 0..10 {
        let body = format!(r#"{{"metadata":{{"annotations":{{"n":"{n}"}}}}}}"#);
        rig.patch(&format!("{PODS}/new"), &body).await.expect(200);
    }
    as_node(&rig, "n1", "GET", &format!("{SECRETS}/new"), "")
        .await
        .expect(200);
    as_node(&rig, "n1", "GET", &format!("{SECRETS}/old"), "")
        .await
        .expect(403);
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_adds_references() {
    let rig = Rig::with(options()).await;
    rig.post(SECRETS, r#"{"metadata":{"name":"late"}}"#)
        .await
        .expect(201);
    rig.post(PODS, &pod("p", "n1", "s")).await.expect(201);
    let secret = format!("{SECRETS}/late");
    as_node(&rig, "n1", "GET", &secret, "").await.expect(403);
    let container = r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"i","envFrom":[{"secretRef":{"name":"late"}}]}]}}"#;
    rig.patch(&format!("{PODS}/p/ephemeralcontainers"), container)
        .await
        .expect(200);
    as_node(&rig, "n1", "GET", &secret, "").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_only_the_status_of_a_claim() {
    let rig = Rig::with(options()).await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    rig.post(
        claims,
        r#"{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#,
    )
    .await
    .expect(201);
    let spec = r#""containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}}]"#;
    let pod = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeName":"n1",{spec}}}}}"#);
    rig.post(PODS, &pod).await.expect(201);
    let status = format!("{claims}/c/status");
    let grown = r#"{"status":{"capacity":{"storage":"2Gi"},"conditions":[{"type":"Resizing","status":"True"}]}}"#;
    as_node(&rig, "n1", "PATCH", &status, grown)
        .await
        .expect(200);
    let more = r#"{"metadata":{"labels":{"a":"b"}},"status":{"phase":"Lost"}}"#;
    let refused = as_node(&rig, "n1", "PATCH", &status, more)
        .await
        .expect(403);
    assert_eq!(
        refused.message(),
        "persistentvolumeclaims \"c\" is forbidden: node \"n1\" is not allowed to update fields other than \
         status.quantity and status.conditions: metadata.labels, status.phase"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rules_review_of_a_node_is_incomplete() {
    let rig = Rig::with(options()).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = r#"{"metadata":{"name":"ask"},"rules":[{"verbs":["create"],"apiGroups":["*"],"resources":["selfsubjectrulesreviews"]}]}"#;
    rig.post(&format!("{rbac}/clusterroles"), role)
        .await
        .expect(201);
    let everybody = r#"{"metadata":{"name":"ask"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"ask"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}"#;
    rig.post(&format!("{rbac}/clusterrolebindings"), everybody)
        .await
        .expect(201);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let body = r#"{"spec":{"namespace":"default"}}"#;
    let told = as_node(&rig, "n1", "POST", path, body)
        .await
        .expect(201)
        .body["status"]
        .clone();
    assert!(told["incomplete"].bool());
    assert_eq!(
        told["evaluationError"].str(),
        "node authorizer does not support user rule resolution"
    );
    let told = rig
        .call_as(User::component("jane"), &[], "POST", path, body)
        .await
        .expect(201)
        .body;
    assert!(!told["status"]["incomplete"].bool());
}

#[tokio::test(start_paused = true)]
async fn without_the_authorizer_a_node_has_what_roles_give_it() {
    let mut options = options();
    options.server.authorization = Authorization(vec![AuthorizerConfiguration::with_default_name(
        AuthorizerType::Rbac,
    )]);
    let rig = Rig::with(options).await;
    as_node(&rig, "n1", "GET", "/api/v1/nodes/n1", "")
        .await
        .expect(403);
    as_node(&rig, "n1", "GET", "/api/v1/namespaces/default/services", "")
        .await
        .expect(403);
}
