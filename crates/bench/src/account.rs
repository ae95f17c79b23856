//! Load as a service account: its token and an RBAC role instead of the certificate of a cluster administrator.

use kube::config::AuthInfo;
use mizzen_sdk::kubeconfig;
use serde_json::{Value, json};

use super::BenchError;
use super::client::{AGENT, ApiCall, ApiEndpoint};
use super::session::Session;

/// The name of the service account, its Role and its RoleBinding.
const NAME: &str = "bench";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";
/// The life of the token, longer than any run.
const EXPIRATION_SECONDS: u32 = 24 * 60 * 60;

/// Creates a service account in the session's namespace and sends the measured requests as it. Requests that are not
/// measured are still sent as the user of the kubeconfig file.
pub(crate) async fn use_service_account(session: &Session) -> Result<(), BenchError> {
    let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", session.namespace);
    let roles = format!("{ROLES}/{}", session.namespace);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME}],
    });
    for (path, object) in [
        (accounts.clone(), account),
        (format!("{roles}/roles"), role()),
        (format!("{roles}/rolebindings"), binding),
    ] {
        session
            .call(&ApiCall::post(path, object.to_string()))
            .await?;
    }
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": EXPIRATION_SECONDS},
    });
    let call = ApiCall::post(format!("{accounts}/{NAME}/token"), request.to_string());
    let response: Value = serde_json::from_slice(&session.call(&call).await?).unwrap_or_default();
    let token = response["status"]["token"]
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
    session.connect_as(ApiEndpoint::new(&config)?).await
}

/// Deletes the role and its binding where no namespace controller does.
pub(crate) fn cleanup_calls(namespace: &str) -> [ApiCall; 2] {
    ["rolebindings", "roles"].map(|plural| ApiCall::delete(format!("{ROLES}/{namespace}/{plural}")))
}

/// Everything that workloads do to their kinds.
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
