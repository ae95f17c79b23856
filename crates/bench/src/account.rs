//! Load by a service account: a token and roles, instead of a certificate and a group that may do everything.

use kube::config::AuthInfo;
use mizzen_sdk::kubeconfig;
use serde_json::{Value, json};

use super::BenchError;
use super::client::{AGENT, Call, Endpoint};
use super::session::Session;

/// What the account, its role and its binding are called.
const NAME: &str = "bench";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";
/// Longer than anybody measures.
const SECONDS: u32 = 24 * 60 * 60;

/// Makes an account in the session's namespace, and lets it put the load on. What is not measured stays with the user of
/// the kubeconfig file.
pub(crate) async fn act(session: &Session) -> Result<(), BenchError> {
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", session.namespace);
    let roles = format!("{ROLES}/{}", session.namespace);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    session
        .call(&Call::post(&accounts, account.to_string()))
        .await?;
    session
        .call(&Call::post(format!("{roles}/roles"), role().to_string()))
        .await?;
    session
        .call(&Call::post(
            format!("{roles}/rolebindings"),
            binding().to_string(),
        ))
        .await?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": SECONDS},
    });
    let call = Call::post(format!("{accounts}/{NAME}/token"), request.to_string());
    let answer: Value = serde_json::from_slice(&session.call(&call).await?).unwrap_or_default();
    let token = answer["status"]["token"]
        .as_str()
        .ok_or_else(|| call.unexpected("there is no token"))?;
    let (file, context) = (
        &session.options.kubeconfig,
        session.options.context.as_deref(),
    );
    let mut config = kubeconfig::load(file, context, AGENT).await?;
    config.auth_info = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    session.connect_as(Endpoint::new(&config)?).await
}

/// How to take away what a namespace's controller takes away where there is one.
pub(crate) fn removals(namespace: &str) -> [Call; 2] {
    ["rolebindings", "roles"].map(|plural| Call::delete(format!("{ROLES}/{namespace}/{plural}")))
}

fn role() -> Value {
    let verbs = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ];
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": NAME},
        "rules": [rule("", &["configmaps", "pods"]), rule("apps", &["deployments"]), rule("*", &["widgets"])],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME}],
    })
}
