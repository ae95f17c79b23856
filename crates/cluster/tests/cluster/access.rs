//! The default RBAC of a new cluster: every resource, every verb, every role.
//!
//! `access.table` has the answers of Kubernetes v1.36 with `--authorization-mode=Node,RBAC`, a line per resource: the users
//! and their verbs.

use http::Request;
use http_body_util::Full;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::client::{Client, Credentials};
use crate::process::Home;

const TABLE: &str = include_str!("access.table");
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const NAMESPACE: &str = "access-matrix";
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// The name in the table, the user, and its cluster role: in one namespace, except for the last.
const PEOPLE: [(&str, &str, &str); 7] = [
    ("anonymous", "system:anonymous", ""),
    ("nobody", "nobody", ""),
    ("view", "viewer", "view"),
    ("edit", "editor", "edit"),
    ("admin", "admin-of-one", "admin"),
    ("cluster-admin", "root", "cluster-admin"),
    ("node", "system:node:n1", ""),
];

#[tokio::test]
async fn default_roles_grant_what_upstreams_do() {
    let process = Home::in_memory().start().await;
    let admin = process.admin().await;
    admin
        .post(
            "/api/v1/namespaces",
            json!({ "metadata": { "name": NAMESPACE } }).to_string(),
        )
        .await
        .expect(201);
    for (_, user, role) in PEOPLE.iter().filter(|person| !person.2.is_empty()) {
        bind(&admin, user, role).await;
    }
    let mut lines = Vec::new();
    for (group, path) in groups(&admin).await {
        let list = admin.get(&path).await.expect(200).json();
        let mut resources = list["resources"].as_array().unwrap().clone();
        resources.sort_by_key(|resource| resource["name"].as_str().unwrap().to_owned());
        for resource in resources {
            lines.push(line(&admin, &group, &resource).await);
        }
    }
    let known: Vec<&str> = TABLE.lines().collect();
    let wrong: Vec<_> = lines
        .iter()
        .filter(|line| !known.contains(&line.as_str()))
        .collect();
    let missing: Vec<_> = known
        .iter()
        .filter(|line| !lines.iter().any(|own| own == **line))
        .collect();
    assert!(
        wrong.is_empty() && missing.is_empty(),
        "{wrong:#?}, {missing:#?}"
    );
}

async fn bind(admin: &Client, user: &str, role: &str) {
    let path = match role {
        "cluster-admin" => "clusterrolebindings".to_owned(),
        _ => format!("namespaces/{NAMESPACE}/rolebindings"),
    };
    let body = json!({
        "metadata": { "name": user },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]
    });
    admin
        .post(
            &format!("/apis/rbac.authorization.k8s.io/v1/{path}"),
            body.to_string(),
        )
        .await
        .expect(201);
}

/// Every group with the path of its preferred version.
async fn groups(admin: &Client) -> Vec<(String, String)> {
    let found = admin.get("/apis").await.expect(200).json();
    let mut groups = vec![(String::new(), "/api/v1".to_owned())];
    for group in found["groups"].as_array().unwrap() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap();
        groups.push((
            group["name"].as_str().unwrap().to_owned(),
            format!("/apis/{version}"),
        ));
    }
    groups
}

async fn line(admin: &Client, group: &str, resource: &Value) -> String {
    let name = resource["name"].as_str().unwrap();
    let mut line = name.to_owned();
    if !group.is_empty() {
        line += &format!(".{group}");
    }
    let questions = PEOPLE
        .iter()
        .flat_map(|(_, user, _)| VERBS.map(|verb| question(group, resource, user, verb)));
    let answers = all(admin, REVIEWS, questions.collect()).await;
    for ((label, _, _), answers) in PEOPLE.iter().zip(answers.chunks(VERBS.len())) {
        let pairs = VERBS
            .iter()
            .zip(answers)
            .filter(|(_, answer)| answer["status"]["allowed"] == true);
        let verbs: Vec<&str> = pairs.map(|(verb, _)| *verb).collect();
        match verbs.len() {
            0 => {}
            8 => line += &format!(" {label}=*"),
            _ => line += &format!(" {label}={}", verbs.join(",")),
        }
    }
    line
}

fn question(group: &str, resource: &Value, user: &str, verb: &str) -> String {
    let name = resource["name"].as_str().unwrap();
    let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
    let namespace = if resource["namespaced"] == true {
        NAMESPACE
    } else {
        ""
    };
    let groups = match user {
        "system:anonymous" => vec!["system:unauthenticated"],
        "system:node:n1" => vec!["system:nodes", "system:authenticated"],
        _ => vec!["system:authenticated"],
    };
    json!({ "spec": { "user": user, "groups": groups, "resourceAttributes": {
        "group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": namespace
    } } })
    .to_string()
}

/// The responses in the order of the requests.
async fn all(client: &Client, path: &str, bodies: Vec<String>) -> Vec<Value> {
    let mut answers = Vec::new();
    for body in bodies {
        answers.push(client.post(path, body).await.expect(201).json());
    }
    answers
}

#[tokio::test]
async fn the_authentication_config_map_has_the_authorities() {
    let process = Home::in_memory().start().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let found = process.admin().await.get(path).await.expect(200).json();
    for field in ["client-ca-file", "requestheader-client-ca-file"] {
        assert!(
            found["data"][field]
                .as_str()
                .unwrap()
                .starts_with("-----BEGIN CERTIFICATE-----"),
            "{field}"
        );
    }
    assert_eq!(
        found["data"]["requestheader-username-headers"],
        r#"["X-Remote-User"]"#
    );
}

#[tokio::test]
async fn removed_rules_of_a_role_are_restored_at_the_next_start() {
    let home = Home::on_disk();
    let process = home.start().await;
    let (view, edit) = (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit",
    );
    let admin = process.admin().await;
    let own = r#"{"rules":[{"verbs":["own"],"apiGroups":["own"],"resources":["own"]}]}"#;
    admin.call("PATCH", view, own).await.expect(200);
    let alone = r#"{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}"#;
    admin.call("PATCH", edit, alone).await.expect(200);
    process.stop().await;
    let process = home.start().await;
    let admin = process.admin().await;
    let rules = admin.get(view).await.expect(200).json()["rules"].clone();
    assert_eq!(rules[0]["verbs"][0], "own");
    assert!(rules.as_array().unwrap().len() > 12, "{rules}");
    assert_eq!(
        admin.get(edit).await.expect(200).json()["rules"],
        Value::Null
    );
}

#[tokio::test]
async fn only_a_front_proxy_may_set_user_headers() {
    let home = Home::on_disk();
    let process = home.start().await;
    let file = |name: &str| std::fs::read_to_string(home.data_dir().join(name)).unwrap();
    let key = KeyPair::from_pem(&file("front-proxy-ca.key")).unwrap();
    let authority = Issuer::from_ca_cert_pem(&file("front-proxy-ca.crt"), key).unwrap();
    let headers: &[(&str, &str)] = &[("x-remote-user", "jane"), ("x-remote-group", "dev")];
    let who = |name: &str, headers| {
        let credentials = Credentials {
            user: Some(signed(&authority, name)),
            ..process.credentials.clone()
        };
        whoami(&process.address, credentials, headers)
    };
    let jane = who("front-proxy-client", headers).await;
    assert_eq!(jane.1["status"]["userInfo"]["username"], "jane");
    assert_eq!(
        jane.1["status"]["userInfo"]["groups"],
        json!(["dev", "system:authenticated"])
    );
    assert_eq!(who("front-proxy-client", &[]).await.0, 401);
    assert_eq!(who("somebody", &[("x-remote-user", "jane")]).await.0, 401);
    let admin = whoami(&process.address, process.credentials.clone(), headers).await;
    assert_eq!(admin.1["status"]["userInfo"]["username"], "admin");
}

fn signed(authority: &Issuer<KeyPair>, name: &str) -> (Vec<u8>, Vec<u8>) {
    let mut client = CertificateParams::default();
    client.distinguished_name.push(DnType::CommonName, name);
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = client.signed_by(&key, authority).unwrap();
    (
        certificate.pem().into_bytes(),
        key.serialize_pem().into_bytes(),
    )
}

async fn whoami(address: &str, credentials: Credentials, headers: &[(&str, &str)]) -> (u16, Value) {
    let client = Client::connect(address, &credentials, &["h2"]).await;
    let mut request =
        Request::post(client.uri("/apis/authentication.k8s.io/v1/selfsubjectreviews"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client
        .fetch(request.body(Full::new("{}".into())).unwrap())
        .await
        .unwrap();
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_user_has_the_permissions_of_the_groups_in_its_certificate() {
    let home = Home::on_disk();
    let process = home.start().await;
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args([
            "kubeconfig",
            "--user",
            "jane",
            "--group",
            "dev",
            "--group",
            "ops",
            "--data-dir",
        ])
        .arg(home.data_dir())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // The server writes the administrator's kubeconfig to another file, and listens on a random port.
    let server = format!("server: https://{}\n", process.address);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains(&server),
        "{output:?}"
    );
    let file = home.path().join("jane.kubeconfig");
    std::fs::write(&file, output.stdout).unwrap();
    let jane = Client::connect(&process.address, &Credentials::read(&file), &["h2"]).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    jane.get(secrets).await.expect(403);
    let body = json!({
        "metadata": { "name": "ops" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "ops" }]
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    process
        .admin()
        .await
        .post(bindings, body.to_string())
        .await
        .expect(201);
    jane.get(secrets).await.expect(200);
}
