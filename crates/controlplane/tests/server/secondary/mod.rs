//! Second checks: what a request needs besides its own verb, because of what it writes or opens.

mod devices;
mod parameters;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_apiserver::{Options, User};
use mizzen_value::{Value, json, value};
use rcgen::{CertificateParams, KeyPair};

use crate::access::Echo;
use crate::rig::{CONFIG_MAPS, Reply, Rig};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn jane() -> User {
    let groups = vec!["dev".into(), "system:authenticated".into()];
    User {
        name: "jane".into(),
        groups,
        ..User::default()
    }
}

async fn as_jane(rig: &Rig, method: &str, path: &str, body: &Value) -> Reply {
    rig.call_as(jane(), &[], method, path, &json::to_string(body))
        .await
}

/// Verbs, group, resources.
type Rule<'a> = (&'a str, &'a str, &'a str);

fn rules(rules: &[Rule]) -> Value {
    let list = |words: &str| words.split(' ').map(Value::from).collect::<Vec<_>>();
    let rule = |(verbs, group, resources): &Rule| value!({ "verbs": (list(verbs)), "apiGroups": [(*group)], "resources": (list(resources)) });
    rules.iter().map(rule).collect::<Vec<_>>().into()
}

/// Grants a user or service account exactly these rules: in a namespace, or in the cluster if that is empty.
async fn grant(rig: &Rig, namespace: &str, user: &User, granted: &[Rule<'_>]) {
    grant_rules(rig, namespace, user, rules(granted)).await;
}

async fn grant_rules(rig: &Rig, namespace: &str, user: &User, rules: Value) {
    let (place, prefix) = match namespace {
        "" => (RBAC.to_owned(), "cluster"),
        namespace => (format!("{RBAC}/namespaces/{namespace}"), ""),
    };
    let kind = if namespace.is_empty() {
        "ClusterRole"
    } else {
        "Role"
    };
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
    let said = message
        .split_once(" is invalid: ")
        .map_or(message, |(_, said)| said);
    assert_eq!(said, expected);
    assert_eq!(reply.body["reason"].str(), "Invalid");
}

#[tokio::test]
async fn a_stream_to_a_pod_needs_create_with_every_method() {
    let rig = Rig::new().await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    rig.post("/api/v1/namespaces/default/pods", pod)
        .await
        .expect(201);
    for stream in ["exec", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{stream}");
        let resource = &*format!("pods/{stream}");
        let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
        let open = async |method: &str| rig.call_as(jane(), &upgrade, method, &path, "").await;
        grant(
            &rig,
            "default",
            &jane(),
            &[("get", "", resource), ("create", "", "pods")],
        )
        .await;
        let refused = open("GET").await.expect(403);
        assert_eq!(refused.message(), "pods \"p\" is forbidden: ");
        open("POST").await.expect(403);
        grant(&rig, "default", &jane(), &[("create", "", resource)]).await;
        open("GET").await.expect(403);
        // Both methods are authorized then; that the pod is on no node is another matter.
        let unplaced = "pod p does not have a host assigned";
        assert_eq!(open("POST").await.expect(400).message(), unplaced);
        grant(&rig, "default", &jane(), &[("get create", "", resource)]).await;
        assert_eq!(open("GET").await.expect(400).message(), unplaced);
    }
}

fn signing_request(name: &str, signer: &str) -> Value {
    let request = CertificateParams::default()
        .serialize_request(&KeyPair::generate().unwrap())
        .unwrap();
    value!({
        "metadata": { "name": name },
        "spec": {
            "request": (STANDARD.encode(request.pem().unwrap())),
            "signerName": signer,
            "usages": ["client auth"]
        }
    })
}

#[tokio::test]
async fn approval_and_signing_need_permission_for_the_signer() {
    let rig = Rig::new().await;
    let condition = |kind: &str| {
        let condition = value!({ "type": kind, "status": "True", "reason": "r", "message": "m" });
        value!({ "status": { "conditions": [(condition)] } })
    };
    let below = "certificatesigningrequests/approval certificatesigningrequests/status";
    let for_signer = |verb: &str, name: &str| {
        let mut all = rules(&[
            ("update patch", "certificates.k8s.io", below),
            (verb, "certificates.k8s.io", "signers"),
        ]);
        all.list_mut()[1].set("resourceNames", vec![Value::from(name)]);
        all
    };
    for (subresource, verb, change) in [
        ("approval", "approve", condition("Approved")),
        ("status", "sign", condition("Failed")),
    ] {
        let (name, signer) = (format!("{verb}-me"), "example.com/own");
        rig.post(REQUESTS, &json::to_string(&signing_request(&name, signer)))
            .await
            .expect(201);
        let path = format!("{REQUESTS}/{name}/{subresource}");
        let expected = format!(
            "certificatesigningrequests.certificates.k8s.io \"{name}\" is forbidden: user not permitted to {verb} requests \
             with signerName \"example.com/own\""
        );
        let mut whole = rig
            .get(&format!("{REQUESTS}/{name}"))
            .await
            .expect(200)
            .body;
        whole.set("status", change["status"].clone());
        let other = if verb == "sign" { "approve" } else { "sign" };
        for (verb, signer) in [
            (other, "example.com/own"),
            (verb, "example.com/other"),
            (verb, "*"),
            (verb, "example.org/*"),
        ] {
            grant_rules(&rig, "", &jane(), for_signer(verb, signer)).await;
            for (method, body) in [("PATCH", &change), ("PUT", &whole)] {
                let refused = as_jane(&rig, method, &path, body).await.expect(403);
                assert_eq!(refused.message(), expected, "{verb} {signer}");
            }
        }
        grant_rules(&rig, "", &jane(), for_signer(verb, "example.com/*")).await;
        as_jane(&rig, "PATCH", &format!("{path}?dryRun=All"), &change)
            .await
            .expect(200);
        grant_rules(&rig, "", &jane(), for_signer(verb, "example.com/own")).await;
        as_jane(&rig, "PUT", &path, &whole).await.expect(200);
    }
}

#[tokio::test]
async fn escalation_is_checked_on_every_write_of_a_role() {
    let rig = Rig::new().await;
    let group = "rbac.authorization.k8s.io";
    let base: Rule = (
        "create update patch",
        group,
        "roles rolebindings clusterroles clusterrolebindings",
    );
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let api_version = format!("{group}/v1");
    let role = value!({
        "apiVersion": (api_version.as_str()),
        "kind": "Role",
        "metadata": { "name": "reader" },
        "rules": (rules(&[("get", "", "secrets")]))
    });
    let binding = value!({
        "apiVersion": (api_version.as_str()),
        "kind": "RoleBinding",
        "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "reads-secrets" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "jane" }]
    });
    let cluster_role = value!({
        "metadata": { "name": "reads-secrets" },
        "rules": (rules(&[("get", "", "secrets")]))
    });
    rig.post(
        &format!("{RBAC}/clusterroles"),
        &json::to_string(&cluster_role),
    )
    .await
    .expect(201);
    let write = async |path: &str, object: &Value| {
        let named = format!("{path}/reader");
        let apply = format!("{named}?fieldManager=m&dryRun=All");
        [
            as_jane(&rig, "POST", &format!("{path}?dryRun=All"), object)
                .await
                .status,
            as_jane(&rig, "PUT", &format!("{named}?dryRun=All"), object)
                .await
                .status,
            as_jane(&rig, "APPLY", &apply, object).await.status,
        ]
    };
    grant(&rig, "", &jane(), &[base]).await;
    assert_eq!(write(&roles, &role).await, [403; 3]);
    assert_eq!(write(&bindings, &binding).await, [403; 3]);
    // To escalate is not to bind, and the other way round.
    grant(&rig, "", &jane(), &[base, ("escalate", group, "roles")]).await;
    assert_eq!(write(&roles, &role).await, [201; 3]);
    assert_eq!(write(&bindings, &binding).await, [403; 3]);
    grant(&rig, "", &jane(), &[base, ("bind", group, "clusterroles")]).await;
    assert_eq!(write(&roles, &role).await, [403; 3]);
    assert_eq!(write(&bindings, &binding).await, [201; 3]);
    // Who has the permission may pass it on.
    grant(&rig, "", &jane(), &[base, ("get", "", "secrets")]).await;
    assert_eq!(write(&roles, &role).await, [201; 3]);
    assert_eq!(write(&bindings, &binding).await, [201; 3]);
    // What a role aggregates is not known beforehand, so it needs everything.
    let aggregate = value!({
        "metadata": { "name": "all" },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] }
    });
    let path = format!("{RBAC}/clusterroles?dryRun=All");
    as_jane(&rig, "POST", &path, &aggregate).await.expect(403);
    grant(
        &rig,
        "",
        &jane(),
        &[base, ("escalate", group, "clusterroles")],
    )
    .await;
    as_jane(&rig, "POST", &path, &aggregate).await.expect(201);
}

#[tokio::test]
async fn features_with_a_disabled_gate_are_not_served() {
    let rig = Rig::new().await;
    for path in [
        "/apis/certificates.k8s.io/v1beta1/clustertrustbundles",
        "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
        "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests",
        "/apis/certificates.k8s.io/v1/clustertrustbundles",
        "/apis/scheduling.k8s.io/v1/namespaces/default/podgroups",
    ] {
        rig.get(path).await.expect(404);
        rig.post(path, "{}").await.expect(404);
    }
    // The option of an unsafe delete is not read: beside it none of these may be set.
    rig.make("c", "t").await;
    let options = r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":true,"dryRun":["All"],"gracePeriodSeconds":1}"#;
    rig.delete(&format!("{CONFIG_MAPS}/c"), options)
        .await
        .expect(200);
    rig.get(&format!("{CONFIG_MAPS}/c")).await.expect(200);
}

#[tokio::test]
async fn a_token_is_bound_only_to_an_existing_object_of_its_account() {
    let rig = Rig::with(Options {
        signer: Some(Arc::new(Echo)),
        ..Options::default()
    })
    .await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for name in ["robot", "other"] {
        rig.post(accounts, &format!(r#"{{"metadata":{{"name":"{name}"}}}}"#))
            .await
            .expect(201);
    }
    let pod = r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"robot","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
    let pod = rig
        .post("/api/v1/namespaces/default/pods", pod)
        .await
        .expect(201);
    let uid = pod.body["metadata"]["uid"].str();
    let bound = |name: &str, uid: &str| {
        let reference = value!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
        value!({ "spec": { "boundObjectRef": (reference) } })
    };
    let path = |account: &str| format!("{accounts}/{account}/token");
    grant(
        &rig,
        "default",
        &jane(),
        &[("*", "", "serviceaccounts pods")],
    )
    .await;
    as_jane(&rig, "POST", &path("robot"), &bound("p", uid))
        .await
        .expect(403);
    grant(
        &rig,
        "default",
        &jane(),
        &[("create", "", "serviceaccounts/token")],
    )
    .await;
    as_jane(&rig, "POST", &path("robot"), &bound("p", uid))
        .await
        .expect(201);
    let refused = as_jane(&rig, "POST", &path("other"), &bound("p", uid))
        .await
        .expect(400);
    assert_eq!(
        refused.message(),
        "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
    );
    as_jane(&rig, "POST", &path("robot"), &bound("p", "another"))
        .await
        .expect(409);
    as_jane(&rig, "POST", &path("robot"), &bound("gone", ""))
        .await
        .expect(404);
}

#[tokio::test]
async fn constrained_impersonation_allows_a_verb_as_a_kind_of_user() {
    let rig = Rig::new().await;
    for name in [
        "system:node:n1",
        "system:node:n2",
        "system:serviceaccount:default:robot",
    ] {
        let impersonated = User {
            name: name.into(),
            ..User::default()
        };
        grant(&rig, "", &impersonated, &[("list get", "", "configmaps")]).await;
    }
    let driver = |node: &str| {
        let extra = value!({ "authentication.kubernetes.io/node-name": [node] });
        User {
            extra,
            ..User::service_account("kube-system", "driver")
        }
    };
    let list = async |user: &User, name: &str| {
        let headers = [("impersonate-user", name)];
        rig.call_as(user.clone(), &headers, "GET", CONFIG_MAPS, "")
            .await
            .status
    };
    let allow = async |user: &User, mode: &str, resource: &str| {
        let (verb, on) = (
            format!("impersonate:{mode}"),
            format!("impersonate-on:{mode}:list"),
        );
        grant(
            &rig,
            "",
            user,
            &[
                (&verb, "authentication.k8s.io", resource),
                (&on, "", "configmaps"),
            ],
        )
        .await;
    };

    // A service account as the node that it runs on, and as no other.
    let (here, n1, n2) = (driver("n1"), "system:node:n1", "system:node:n2");
    assert_eq!(list(&here, n1).await, 403);
    allow(&here, "associated-node", "nodes").await;
    assert_eq!((list(&here, n1).await, list(&here, n2).await), (200, 403));
    assert_eq!(
        (list(&driver("n2"), n1).await, list(&driver("n2"), n2).await),
        (403, 200)
    );
    let unbound = User::service_account("kube-system", "driver");
    assert_eq!(list(&unbound, n1).await, 403);
    // For this verb, and for no other.
    let (headers, path) = ([("impersonate-user", n1)], format!("{CONFIG_MAPS}/c"));
    assert_eq!(
        rig.call_as(here.clone(), &headers, "GET", &path, "")
            .await
            .status,
        403
    );

    allow(&jane(), "arbitrary-node", "nodes").await;
    assert_eq!(
        (list(&jane(), n1).await, list(&jane(), n2).await),
        (200, 200)
    );
    let robot = "system:serviceaccount:default:robot";
    assert_eq!(list(&jane(), robot).await, 403);
    allow(&jane(), "serviceaccount", "serviceaccounts").await;
    assert_eq!(
        (list(&jane(), robot).await, list(&jane(), n1).await),
        (200, 403)
    );
    // A group is not part of these ways.
    let with_group = [("impersonate-user", robot), ("impersonate-group", "dev")];
    assert_eq!(
        rig.call_as(jane(), &with_group, "GET", CONFIG_MAPS, "")
            .await
            .status,
        403
    );
    // Permission to act as a user is no permission to do anything as that user.
    grant(
        &rig,
        "",
        &jane(),
        &[(
            "impersonate:serviceaccount",
            "authentication.k8s.io",
            "serviceaccounts",
        )],
    )
    .await;
    assert_eq!(list(&jane(), robot).await, 403);
}
