//! Second checks: what a request needs besides its own verb, because of what it writes or opens.

mod devices;
mod parameters;

use mizzen_apiserver::User;
use mizzen_object::{Value, json, value};

use crate::rig::{Reply, Rig};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn jane() -> User {
    let groups = vec!["dev".into(), "system:authenticated".into()];
    User { name: "jane".into(), groups, ..User::default() }
}

async fn as_jane(rig: &Rig, method: &str, path: &str, body: &Value) -> Reply {
    rig.call_as(jane(), &[], method, path, &json::to_string(body)).await
}

/// Verbs, group, resources.
type Rule<'a> = (&'a str, &'a str, &'a str);

fn rules(rules: &[Rule]) -> Value {
    let list = |words: &str| words.split(' ').map(Value::from).collect::<Vec<_>>();
    let rule = |(verbs, group, resources): &Rule| value!({ "verbs": (list(verbs)), "apiGroups": [(*group)], "resources": (list(resources)) });
    rules.iter().map(rule).collect::<Vec<_>>().into()
}

/// Gives a user or service account these rules and no others: in a namespace, or in the whole cluster if that is empty.
async fn grant(rig: &Rig, namespace: &str, user: &User, granted: &[Rule<'_>]) {
    grant_rules(rig, namespace, user, rules(granted)).await;
}

async fn grant_rules(rig: &Rig, namespace: &str, user: &User, rules: Value) {
    let (place, prefix) = match namespace {
        "" => (RBAC.to_owned(), "cluster"),
        namespace => (format!("{RBAC}/namespaces/{namespace}"), ""),
    };
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let name = user.name.replace(':', "-");
    let role = value!({ "metadata": { "name": (name.as_str()) }, "rules": (rules) });
    let binding = value!({
        "metadata": { "name": (name.as_str()) },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": (name.as_str()) },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": (user.name.as_str()) }]
    });
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{place}/{prefix}{plural}");
        rig.delete(&format!("{path}/{name}"), "").await;
        rig.post(&path, &json::to_string(&object)).await.expect(201);
    }
}

#[track_caller]
fn check_invalid(reply: Reply, expected: &str) {
    let reply = reply.expect(422);
    let message = reply.message();
    let said = message.split_once(" is invalid: ").map_or(message, |(_, said)| said);
    assert_eq!(said, expected);
    assert_eq!(reply.body["reason"].str(), "Invalid");
}

#[tokio::test]
async fn a_stream_to_a_pod_needs_create_whatever_opens_it() {
    let rig = Rig::new().await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    rig.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    for stream in ["exec", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{stream}");
        let resource = &*format!("pods/{stream}");
        let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
        let open = async |method: &str| rig.call_as(jane(), &upgrade, method, &path, "").await;
        grant(&rig, "default", &jane(), &[("get", "", resource), ("create", "", "pods")]).await;
        let refused = open("GET").await.expect(403);
        assert_eq!(refused.message(), "pods \"p\" is forbidden: ");
        open("POST").await.expect(403);
        grant(&rig, "default", &jane(), &[("create", "", resource)]).await;
        open("GET").await.expect(403);
        // Both methods are authorized then; that this server has no streams is another matter.
        open("POST").await.expect(501);
        grant(&rig, "default", &jane(), &[("get create", "", resource)]).await;
        open("GET").await.expect(501);
    }
}
