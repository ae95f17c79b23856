//! What one server is told to enforce, the other enforces: admission policies, webhooks, quotas, priority levels, roles;
//! and tokens and certificates of servers that share nothing but files of keys.

use std::fs;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{CONFIG_MAPS, Servers, config_map};
use crate::client::{Answer, Client, Credentials};
use crate::etcd_server::{Options, installed};
use crate::process::{Home, Process, STEP_TIMEOUT};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const FLOW_CONTROL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
/// Between two requests of a client that waits.
const PAUSE: Duration = Duration::from_millis(20);
/// How many ConfigMaps the quota allows, and how many are created at once.
const QUOTA: usize = 10;
const N_CREATED: usize = 40;

/// Asks until the answer has a status and a text.
async fn wait_for(status: u16, text: &str, ask: impl AsyncFn() -> Answer) {
    let asked = async {
        loop {
            let answer = ask().await;
            if answer.status == status && answer.text().contains(text) {
                return;
            }
            sleep(PAUSE).await;
        }
    };
    let waited = timeout(STEP_TIMEOUT, asked).await;
    waited.unwrap_or_else(|_| panic!("the answer is not {status} {text}"));
}

/// Tries to create a ConfigMap until the answer has a status and a text.
async fn wait_for_create(client: &Client, status: u16, text: &str) {
    let path = format!("{CONFIG_MAPS}?dryRun=All");
    wait_for(status, text, async || {
        client.post(&path, config_map("denied")).await
    })
    .await;
}

#[tokio::test]
async fn an_admission_policy_of_one_server_is_enforced_by_the_other() {
    let Some(servers) = Servers::start_one().await else {
        return;
    };
    let (first, second) = servers.clients().await;
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]
    });
    let policy = json!({ "metadata": { "name": "p" }, "spec": {
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": "object.metadata.name != 'denied'", "message": "not this name" }]
    } });
    let binding = json!({
        "metadata": { "name": "p" },
        "spec": { "policyName": "p", "validationActions": ["Deny"] }
    });
    wait_for_create(&second, 201, "denied").await;
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
    let policies = format!("{ADMISSION}/validatingadmissionpolicies");
    first.post(&policies, policy.to_string()).await.expect(201);
    second
        .post(&bindings, binding.to_string())
        .await
        .expect(201);
    for client in [&second, &first] {
        let expected =
            "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not this name";
        wait_for_create(client, 422, expected).await;
        let path = format!("{CONFIG_MAPS}?dryRun=All");
        client.post(&path, config_map("other")).await.expect(201);
    }
    let own = format!("{bindings}/p");
    second.call("DELETE", &own, "").await.expect(200);
    for client in [&first, &second] {
        wait_for_create(client, 201, "denied").await;
    }
}

#[tokio::test]
async fn a_webhook_of_one_server_is_called_by_the_other() {
    let Some(servers) = Servers::start_one().await else {
        return;
    };
    let (first, second) = servers.clients().await;
    for plural in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        // Nothing listens there, so that the call fails, and with it the write.
        let hook = json!({
            "name": "hook.example.com",
            "clientConfig": { "url": "https://127.0.0.1:1/hook" },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"]
            }],
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 5
        });
        let hooks = json!({ "metadata": { "name": "w" }, "webhooks": [hook] });
        let path = format!("{ADMISSION}/{plural}");
        first.post(&path, hooks.to_string()).await.expect(201);
        for client in [&second, &first] {
            let expected = "failed calling webhook \\\"hook.example.com\\\"";
            wait_for_create(client, 500, expected).await;
        }
        let own = format!("{path}/w");
        second.call("DELETE", &own, "").await.expect(200);
        for client in [&first, &second] {
            wait_for_create(client, 201, "denied").await;
        }
    }
}

#[tokio::test]
async fn creates_through_both_servers_never_exceed_a_quota() {
    for servers in Servers::start_all().await {
        let (first, second) = servers.clients().await;
        let hard = json!({ "count/configmaps": QUOTA.to_string() });
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
        first.post(QUOTAS, quota.to_string()).await.expect(201);
        // What its controller would say first: nothing is used.
        let status = json!({ "status": { "hard": hard, "used": { "count/configmaps": "0" } } });
        let own = format!("{QUOTAS}/q");
        let path = format!("{own}/status");
        first
            .call("PATCH", &path, status.to_string())
            .await
            .expect(200);
        let is_limited = |quota: Answer| quota.json()["status"]["hard"] == hard;
        let path = format!("{own}?resourceVersion=0");
        while !is_limited(second.get(&path).await) {
            sleep(PAUSE).await;
        }

        let mut creations = JoinSet::new();
        for n in 0..N_CREATED {
            let client = if n % 2 == 0 { &first } else { &second };
            let client = client.clone();
            creations.spawn(async move {
                loop {
                    let answer = client.post(CONFIG_MAPS, config_map(&format!("m{n}"))).await;
                    // A request that lost too many races for the quota is sent again, as clients do.
                    if answer.status != 409 {
                        return answer;
                    }
                }
            });
        }
        let answers = timeout(STEP_TIMEOUT, creations.join_all()).await;
        let answers = answers.expect("all are answered");
        let n_created = answers.iter().filter(|answer| answer.status == 201).count();
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            let text = answer.text();
            assert_eq!(answer.status, 403, "{text}");
            assert!(text.contains("exceeded quota: q"), "{text}");
        }
        assert_eq!(n_created, QUOTA);
        for client in [&first, &second] {
            let list = client.get(CONFIG_MAPS).await.expect(200).json();
            assert_eq!(list["items"].as_array().unwrap().len(), QUOTA);
            let quota = client.get(&own).await.expect(200).json();
            assert_eq!(quota["status"]["used"], hard);
        }
    }
}

/// The flow schema and the priority level of a request of the user.
async fn levels(client: &Client) -> [String; 2] {
    let request = Request::get(client.uri(CONFIG_MAPS)).body(Full::default());
    let response = client.send(request.unwrap()).await.unwrap();
    [
        "x-kubernetes-pf-flowschema-uid",
        "x-kubernetes-pf-prioritylevel-uid",
    ]
    .map(|name| response.headers()[name].to_str().unwrap().to_owned())
}

#[tokio::test]
async fn priority_levels_and_flow_schemas_of_one_server_apply_on_the_other() {
    let Some(servers) = Servers::start_one().await else {
        return;
    };
    let (first, second) = servers.clients().await;
    let level = json!({ "metadata": { "name": "mine" }, "spec": {
        "type": "Limited",
        "limited": { "nominalConcurrencyShares": 10, "limitResponse": { "type": "Reject" } }
    } });
    let rule = json!({
        "subjects": [{ "kind": "User", "user": { "name": "system:anonymous" } }],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]
        }]
    });
    let schema = json!({ "metadata": { "name": "mine" }, "spec": {
        "priorityLevelConfiguration": { "name": "mine" }, "matchingPrecedence": 2, "rules": [rule]
    } });
    let create = async |client: &Client, plural: &str, object: Value| {
        let path = format!("{FLOW_CONTROL}/{plural}");
        let created = client.post(&path, object.to_string()).await.expect(201);
        let uid = &created.json()["metadata"]["uid"];
        uid.as_str().unwrap().to_owned()
    };
    let level = create(&first, "prioritylevelconfigurations", level).await;
    let expected = [create(&second, "flowschemas", schema).await, level];
    for server in [&servers.first, &servers.second] {
        let applied = async {
            while levels(&server.anonymous().await).await != expected {
                sleep(PAUSE).await;
            }
        };
        let waited = timeout(STEP_TIMEOUT, applied).await;
        waited.expect("requests have the new priority level");
    }
}

#[tokio::test]
async fn a_role_that_one_server_binds_and_unbinds_is_effective_on_the_other() {
    let Some(servers) = Servers::start_one().await else {
        return;
    };
    let (first, second) = servers.clients().await;
    let role = json!({
        "metadata": { "name": "reader" },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"] }]
    });
    let binding = json!({
        "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
        "subjects": [
            { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous" }
        ]
    });
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    let list = async |server: &Process| server.anonymous().await.get(CONFIG_MAPS).await;
    list(&servers.second).await.expect(403);
    first.post(&roles, role.to_string()).await.expect(201);
    first.post(&bindings, binding.to_string()).await.expect(201);
    wait_for(200, "ConfigMapList", async || list(&servers.second).await).await;
    let own = format!("{bindings}/reader");
    second.call("DELETE", &own, "").await.expect(200);
    wait_for(403, "Forbidden", async || list(&servers.first).await).await;
}

/// Files that servers with different data directories are given: authorities of clients, and the key of tokens.
fn write_shared_files(home: &Home) -> Credentials {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "clients");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::CommonName, "jane");
    admin
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = admin.signed_by(&key, &authority).unwrap();
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    write("clients.pem", &authority.pem());
    let token_key = include_str!("../../../../bootstrap/tests/keys/p256.pkcs8.pem");
    write("tokens.pem", token_key);
    Credentials::new("", &certificate.pem(), &key.serialize_pem())
}

#[tokio::test]
async fn servers_with_different_data_directories_accept_tokens_and_certificates_of_the_same_keys() {
    for etcd in installed().into_iter().take(1) {
        let etcd = etcd.start(Options::default()).await;
        let home = |shared: Option<&Home>| {
            let home = Home::on_disk()
                .with("--etcd-servers")
                .with(etcd.endpoint(0));
            let path = |name: &str| {
                let dir = shared.map_or_else(|| home.path(), Home::path);
                dir.join(name).display().to_string()
            };
            let (clients, tokens) = (path("clients.pem"), path("tokens.pem"));
            home.with(format!("--client-ca-file={clients}"))
                .with(format!("--service-account-key-file={tokens}"))
                .with(format!("--service-account-signing-key-file={tokens}"))
        };
        let one = home(None);
        let other = home(Some(&one));
        let jane = write_shared_files(&one);
        let servers = [one.start().await, other.start().await];
        assert_ne!(
            servers[0].credentials.authority, servers[1].credentials.authority,
            "each has authorities of its own"
        );
        let mut clients = Vec::new();
        for server in &servers {
            let jane = Credentials {
                authority: server.credentials.authority.clone(),
                ..jane.clone()
            };
            clients.push(Client::connect(&server.address, &jane, &["h2"]).await);
        }
        let account = json!({ "metadata": { "name": "robot" } }).to_string();
        clients[0].post(ACCOUNTS, account).await.expect(201);
        for (issuer, acceptor) in [(0, 1), (1, 0)] {
            let path = format!("{ACCOUNTS}/robot/token");
            let issued = clients[issuer].post(&path, "{}").await.expect(201).json();
            let token = issued["status"]["token"].as_str().unwrap();
            let client = servers[acceptor].anonymous().await;
            let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
            let request = Request::post(client.uri(reviews))
                .header("authorization", format!("Bearer {token}"))
                .header("content-type", "application/json")
                .body(Full::from("{}"));
            let review = client.fetch(request.unwrap()).await.unwrap();
            let review = review.expect(201).json();
            assert_eq!(
                review["status"]["userInfo"]["username"],
                "system:serviceaccount:default:robot"
            );
        }
        // A certificate of the first server's own authority is none that the second one knows.
        let foreign = Credentials {
            authority: servers[1].credentials.authority.clone(),
            ..servers[0].credentials.clone()
        };
        let client = Client::connect(&servers[1].address, &foreign, &["http/1.1"]).await;
        client.get(CONFIG_MAPS).await.expect(401);
    }
}
