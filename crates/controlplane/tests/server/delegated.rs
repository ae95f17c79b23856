//! An aggregated API server: namespaces, policies, webhooks and authorities of the main server apply to its kinds, also in
//! the same process.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use mizzen_apiserver::delegate::{RunError, Serving, Upstream};
use mizzen_apiserver::discovery::Priority;
use mizzen_apiserver::{ClientIdentity, Options, Server, User};
use mizzen_outgoing::{OutgoingClient, Target, Trust, whole};
use mizzen_registry::Store;
use mizzen_value::{Value, json, value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::aggregation::read_until;
use crate::network::{Authority, Network};
use crate::own::{BOATS, builder, launch};
use crate::peer::{Peer, Reaction};
use crate::rig::{CONFIG_MAPS, Reply, Rig, registry};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const TRUST_COLLECTION: &str = "/api/v1/namespaces/kube-system/configmaps";
const TRUST_NAME: &str = "extension-apiserver-authentication";
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A main server, and an aggregated one that follows it.
struct Aggregated {
    main: Rig,
    own: Rig,
    /// The main server on the network.
    network: Network,
    /// Signs the certificate that the main server has as a front proxy.
    front_proxy: Authority,
    follower: JoinHandle<()>,
}

/// An aggregated server on the network.
struct Running {
    port: u16,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Aggregated {
    async fn start() -> Aggregated {
        let front_proxy = Authority::new();
        let options = Options {
            front_proxy: Some(front_proxy.identity()),
            ..Options::default()
        };
        let main = Rig::with(options).await;
        let network = Network::start(&main.server).await;
        let upstream = load(&network.kubeconfig());
        let server = builder().upstream(&upstream).build().unwrap();
        let followed = upstream.clone();
        let follower = tokio::spawn(async move { followed.follow().await });
        Aggregated {
            main,
            own: Rig { server },
            network,
            front_proxy,
            follower,
        }
    }

    /// Runs the aggregated server. `trusted` is what the main server publishes about certificates and headers.
    async fn run(&self, trusted: &Value) -> Running {
        let namespace = value!({ "metadata": { "name": "kube-system" } });
        self.create("/api/v1/namespaces", &namespace).await;
        let config_map =
            value!({ "metadata": { "name": (TRUST_NAME) }, "data": (trusted.clone()) });
        self.create(TRUST_COLLECTION, &config_map).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server: Server = self.own.server.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = Serving {
            listener,
            identity: Authority::new().identity(),
        };
        let task = tokio::spawn(server.run(serving, async { drop(stopped.await) }));
        Running { port, stop, task }
    }

    /// Changes what the main server publishes about certificates and headers.
    async fn publish(&self, trusted: &Value) {
        let path = format!("{TRUST_COLLECTION}/{TRUST_NAME}");
        let text = json::to_string(&value!({ "data": (trusted.clone()) }));
        self.main.patch(&path, &text).await.expect(200);
    }

    /// Lets the main server proxy to the aggregated one.
    async fn register(&self, port: u16) {
        self.main.server.aggregate().await.unwrap();
        self.create(SERVICES, &external_service("sea")).await;
        let api_service = value!({
            "metadata": { "name": "v1.sea.example.com" },
            "spec": {
                "group": "sea.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 15,
                "insecureSkipTLSVerify": true,
                "service": { "namespace": "default", "name": "sea", "port": (i64::from(port)) },
            },
        });
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        self.create(path, &api_service).await;
        let available = async {
            while self.main.get(BOATS).await.status != 200 {
                tokio::task::yield_now().await;
            }
        };
        timeout(STEP_TIMEOUT, available).await.expect("it is found");
    }

    /// Creates an object on the main server.
    async fn create(&self, path: &str, object: &Value) {
        create(&self.main, path, object).await;
    }

    /// Calls a boat by radio until the answer is as wanted.
    async fn connect_until(&self, name: &str, is_wanted: impl Fn(&Reply) -> bool) -> Reply {
        let upgrade = [("connection", "Upgrade"), ("upgrade", "radio")];
        let path = format!("{BOATS}/{name}/radio?frequency=16");
        let tries = async {
            loop {
                let admin = User::master("admin");
                let reply = self.own.call_as(admin, &upgrade, "GET", &path, "").await;
                if is_wanted(&reply) {
                    return reply;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(STEP_TIMEOUT, tries).await.expect("it arrives")
    }

    /// Launches boats until the answer is as wanted: the main server's state arrives a little later.
    async fn launch_until(&self, name: &str, is_wanted: impl Fn(&Reply) -> bool) -> Reply {
        let tries = async {
            loop {
                let reply = launch(&self.own, name, 9).await;
                if is_wanted(&reply) {
                    return reply;
                }
                if reply.status == 201 {
                    let path = format!("{BOATS}/{name}");
                    let now = r#"{"gracePeriodSeconds":0}"#;
                    self.own.delete(&path, now).await.expect(200);
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(STEP_TIMEOUT, tries).await.expect("it arrives")
    }
}

/// Whether a connection was admitted: without a network it is not upgraded.
fn is_admitted(reply: &Reply) -> bool {
    reply.message() == "Upgrade request required"
}

impl Drop for Aggregated {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

impl Running {
    /// Stops the server, and waits until it has stopped.
    async fn stop(self) {
        drop(self.stop);
        let ended = timeout(STEP_TIMEOUT, self.task).await.unwrap();
        ended.unwrap().unwrap();
    }
}

async fn create(main: &Rig, path: &str, object: &Value) {
    let text = json::to_string(object);
    main.post(path, &text).await.expect(201);
}

/// A policy of the main server: boats are not longer than a ConfigMap says, at first 8 feet.
async fn forbid_long_boats(main: &Rig) {
    let rules = value!([{
        "apiGroups": ["sea.example.com"], "apiVersions": ["v1"], "resources": ["boats"], "operations": ["CREATE"],
    }]);
    let policy = value!({
        "metadata": { "name": "short" },
        "spec": {
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "matchConstraints": { "resourceRules": (rules) },
            "validations": [{ "expression": "object.feet <= int(params.data.max)", "message": "too long" }],
        },
    });
    let policies = format!("{REGISTRATION}/validatingadmissionpolicies");
    create(main, &policies, &policy).await;
    let params = value!({ "metadata": { "name": "limits" }, "data": { "max": "8" } });
    create(main, CONFIG_MAPS, &params).await;
    let binding = value!({
        "metadata": { "name": "short" },
        "spec": {
            "policyName": "short", "validationActions": ["Deny"],
            "paramRef": { "name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny" },
        },
    });
    let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
    create(main, &bindings, &binding).await;
}

/// A Service that leads to this machine.
fn external_service(name: &str) -> Value {
    value!({
        "metadata": { "name": (name) }, "spec": { "type": "ExternalName", "externalName": "localhost" },
    })
}

fn load(kubeconfig: &str) -> Upstream {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig).unwrap();
    Upstream::load(&file, &registry(Store::in_memory(Default::default()))).unwrap()
}

#[tokio::test]
async fn an_object_needs_a_namespace_of_the_main_server() {
    let servers = Aggregated::start().await;
    launch(&servers.own, "jolle", 9).await.expect(201);
    let boats = BOATS.replace("default", "harbour");
    let boat = r#"{"metadata":{"name":"jolle"},"feet":9}"#;
    let refused = servers.own.post(&boats, boat).await.expect(404);
    assert_eq!(refused.message(), "namespaces \"harbour\" not found");

    // It is found as soon as it exists.
    let namespace = value!({ "metadata": { "name": "harbour" } });
    servers.create("/api/v1/namespaces", &namespace).await;
    servers.own.post(&boats, boat).await.expect(201);

    let path = "/api/v1/namespaces/harbour";
    servers.main.delete(path, "").await.expect(200);
    let boat = r#"{"metadata":{"generateName":"jolle-"},"feet":9}"#;
    let refused = async {
        loop {
            let reply = servers.own.post(&boats, boat).await;
            if reply.status == 403 {
                return reply;
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = timeout(STEP_TIMEOUT, refused).await.unwrap();
    let causes = refused.body["details"]["causes"].list();
    assert_eq!(causes[0]["reason"].str(), "NamespaceTerminating");
    // What is there can be changed and deleted.
    let patched = format!("{boats}/jolle");
    servers
        .own
        .patch(&patched, r#"{"feet":8}"#)
        .await
        .expect(200);
}

#[tokio::test]
async fn policies_of_the_main_server_apply() {
    let servers = Aggregated::start().await;
    launch(&servers.own, "jolle", 9).await.expect(201);
    forbid_long_boats(&servers.main).await;
    let refused = servers
        .launch_until("dory", |reply| reply.status == 422)
        .await;
    assert!(
        refused.message().ends_with("too long"),
        "{}",
        refused.message()
    );

    // Parameters are read when they are needed.
    let longer = r#"{"data":{"max":"20"}}"#;
    let limits = format!("{CONFIG_MAPS}/limits");
    servers.main.patch(&limits, longer).await.expect(200);
    launch(&servers.own, "dory", 9).await.expect(201);
}

/// A webhook configuration of the main server for an operation on boats.
fn boat_webhook(client: &Value, resource: &str, operation: &str) -> Value {
    value!({
        "metadata": { "name": "dock" },
        "webhooks": [{
            "name": "dock.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": (client.clone()),
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
            "rules": [{
                "apiGroups": ["sea.example.com"], "apiVersions": ["*"], "resources": [(resource)],
                "operations": [(operation)],
            }],
        }],
    })
}

/// A validating webhook of the main server: it rejects the boat `wreck`.
async fn inspect(main: &Rig, resource: &str, operation: &str) -> Peer {
    let peer = Peer::start(&["localhost"], |request| {
        let review = json::parse(request.body()).unwrap();
        let request = &review["request"];
        let is_allowed = request["name"].str() != "wreck";
        let response = value!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {
                "uid": (request["uid"].clone()), "allowed": is_allowed, "status": { "message": "it leaks" },
            },
        });
        Reaction::Reply(200, json::to_string(&response))
    })
    .await;
    let url = format!("https://localhost:{}/", peer.port);
    let client = value!({ "url": (url), "caBundle": (peer.bundle()) });
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    let configuration = boat_webhook(&client, resource, operation);
    create(main, &path, &configuration).await;
    peer
}

#[tokio::test]
async fn webhooks_of_the_main_server_are_called() {
    let servers = Aggregated::start().await;
    let _peer = inspect(&servers.main, "boats", "CREATE").await;
    let refused = servers
        .launch_until("wreck", |reply| reply.status == 400)
        .await;
    let message = r#"admission webhook "dock.example.com" denied the request: it leaks"#;
    assert!(refused.message().contains(message), "{}", refused.message());
    launch(&servers.own, "jolle", 9).await.expect(201);
}

/// A mutating webhook of the main server, behind a Service: it labels and shortens new boats.
async fn dock(main: &Rig) -> Peer {
    let peer = Peer::start(&["dock.default.svc"], |request| {
        let review = json::parse(request.body()).unwrap();
        let patch = r#"[{"op":"add","path":"/metadata/labels","value":{"docked":"yes"}},{"op":"replace","path":"/feet","value":8}]"#;
        let response = value!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {
                "uid": (review["request"]["uid"].clone()), "allowed": true, "patchType": "JSONPatch",
                "patch": (STANDARD.encode(patch)),
            },
        });
        Reaction::Reply(200, json::to_string(&response))
    })
    .await;
    create(main, SERVICES, &external_service("dock")).await;
    let client = value!({
        "service": { "namespace": "default", "name": "dock", "port": (i64::from(peer.port)), "path": "/boats" },
        "caBundle": (peer.bundle()),
    });
    let path = format!("{REGISTRATION}/mutatingwebhookconfigurations");
    create(main, &path, &boat_webhook(&client, "boats", "CREATE")).await;
    peer
}

fn is_docked(reply: &Reply) -> bool {
    reply.body.at("metadata.labels.docked").str() == "yes"
}

#[tokio::test]
async fn a_mutating_webhook_of_the_main_server_behind_a_service_changes_objects() {
    let servers = Aggregated::start().await;
    let peer = dock(&servers.main).await;
    let boat = servers.launch_until("jolle", is_docked).await.expect(201);
    assert_eq!(boat.body["feet"].int(), 8);
    let stored = servers.own.get(&format!("{BOATS}/jolle")).await.expect(200);
    assert_eq!((stored.body["feet"].int(), is_docked(&stored)), (8, true));
    let review = peer.seen().pop().unwrap();
    assert_eq!(review.uri().path(), "/boats");
    let review = json::parse(review.body()).unwrap();
    assert_eq!(review["request"]["object"]["feet"].int(), 9);

    // What a webhook makes of an object is validated, too.
    let refused = launch(&servers.own, "titanic", 9).await.expect(403);
    assert!(refused.message().ends_with("it sinks"));
}

#[tokio::test(start_paused = true)]
async fn without_the_main_server_no_write_is_admitted() {
    // Nothing follows the main server, so nothing is known about it.
    let upstream = load(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: \
         {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: t}}]\n",
    );
    let own = Rig {
        server: builder().upstream(&upstream).build().unwrap(),
    };
    let refused = launch(&own, "jolle", 9).await.expect(503);
    let message =
        "the main API server's policies are not known yet: namespaces: it was not listed yet";
    assert_eq!(refused.message(), message);
    own.get(BOATS).await.expect(200);
}

/// The answer of an aggregated server to a client with a certificate, which sends headers besides.
async fn answer(
    port: u16,
    identity: ClientIdentity,
    headers: &[(&'static str, &'static str)],
) -> (u16, String) {
    let registry = registry(Store::in_memory(Default::default()));
    let client = OutgoingClient::plain(&registry, Some(identity));
    let target = Target {
        address: format!("127.0.0.1:{port}"),
        server_name: "localhost".into(),
        trust: Trust::Anyone,
        as_front_proxy: true,
        http2: false,
    };
    let mut request = http::Request::get(format!("https://localhost:{port}{BOATS}"));
    for (name, text) in headers {
        request = request.header(*name, *text);
    }
    let request = request.body(whole("".into())).unwrap();
    let response = client.send(&target, request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status = json::parse(&body).unwrap();
    (code, status["message"].str().to_owned())
}

#[tokio::test]
async fn authorities_of_the_main_server_are_followed() {
    let servers = Aggregated::start().await;
    let [first, second] = [Authority::new(), Authority::new()];
    let trusting = |authority: &Authority| value!({ "client-ca-file": (authority.pem.as_str()) });
    let running = servers.run(&trusting(&first)).await;
    let code = async |authority: &Authority| {
        let (code, _) = answer(running.port, authority.identity(), &[]).await;
        code
    };
    // The main server does not know the user `admin`, who is in no group.
    assert_eq!(code(&first).await, 403);
    assert_eq!(code(&second).await, 401);

    servers.publish(&trusting(&second)).await;
    let followed = async {
        while code(&second).await != 403 {
            tokio::task::yield_now().await;
        }
    };
    timeout(STEP_TIMEOUT, followed).await.expect("it arrives");
    assert_eq!(code(&first).await, 401);
    running.stop().await;
}

#[tokio::test]
async fn names_of_the_front_proxys_headers_are_followed() {
    let servers = Aggregated::start().await;
    let running = servers
        .run(&value!({
            "requestheader-client-ca-file": (servers.front_proxy.pem.as_str()),
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
        }))
        .await;
    let request = async |headers: &[(&'static str, &'static str)]| {
        answer(running.port, servers.front_proxy.identity(), headers).await
    };
    let before = [
        ("x-remote-user", "jane"),
        ("x-remote-group", "system:masters"),
    ];
    let after = [("x-sailor", "joan"), ("x-crew", "system:masters")];
    assert_eq!(request(&before).await.0, 200);
    assert_eq!(request(&after).await.0, 401);
    let (code, message) = request(&before[..1]).await;
    assert_eq!(code, 403);
    assert!(message.contains("User \"jane\" cannot list"), "{message}");

    servers
        .publish(&value!({
            "requestheader-username-headers": "[\"X-Sailor\"]",
            "requestheader-group-headers": "[\"X-Crew\"]",
        }))
        .await;
    let followed = async {
        while request(&after).await.0 != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(STEP_TIMEOUT, followed).await.expect("it arrives");
    assert_eq!(request(&before).await.0, 401);
    // A group in a header of the previous name counts no longer.
    let mixed = [after[0], before[1]];
    let (code, message) = request(&mixed).await;
    assert_eq!(code, 403);
    assert!(message.contains("User \"joan\" cannot list"), "{message}");
    running.stop().await;
}

#[tokio::test]
async fn an_upgraded_connection_goes_through_the_main_server() {
    let servers = Aggregated::start().await;
    let running = servers
        .run(&value!({ "requestheader-client-ca-file": (servers.front_proxy.pem.as_str()) }))
        .await;
    servers.register(running.port).await;
    launch(&servers.main, "jolle", 9).await.expect(201);
    let mut stream = servers.network.connect().await;
    let request = format!(
        "GET {BOATS}/jolle/radio?frequency=16 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: radio\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for word in ["mayday.", "position."] {
        stream.write_all(word.as_bytes()).await.unwrap();
        assert_eq!(read_until(&mut stream, ".").await, word);
    }
    // The boat answers after it has received the end.
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "roger.");
    running.stop().await;
}

#[tokio::test]
async fn a_policy_of_the_main_server_denies_a_connection() {
    let servers = Aggregated::start().await;
    for name in ["jolle", "dory"] {
        launch(&servers.own, name, 9).await.expect(201);
    }
    let expression = "request.operation == 'CONNECT' && request.subResource == 'radio' && object == null && \
        request.kind.kind == 'Boat' && request.name != 'jolle'";
    let policy = value!({
        "metadata": { "name": "silence" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["sea.example.com"], "apiVersions": ["v1"], "resources": ["boats/radio"],
                "operations": ["CONNECT"],
            }] },
            "validations": [{ "expression": (expression), "message": "radio silence" }],
        },
    });
    let policies = format!("{REGISTRATION}/validatingadmissionpolicies");
    servers.create(&policies, &policy).await;
    let binding = value!({
        "metadata": { "name": "silence" },
        "spec": { "policyName": "silence", "validationActions": ["Deny"] },
    });
    let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
    servers.create(&bindings, &binding).await;
    let is_denied = |reply: &Reply| reply.status == 422;
    let denied = servers.connect_until("jolle", is_denied).await;
    let message = denied.message();
    assert!(message.ends_with("radio silence"), "{message}");
    servers.connect_until("dory", is_admitted).await;
}

#[tokio::test]
async fn a_webhook_of_the_main_server_denies_a_connection() {
    let servers = Aggregated::start().await;
    for name in ["jolle", "wreck"] {
        launch(&servers.own, name, 9).await.expect(201);
    }
    let peer = inspect(&servers.main, "boats/radio", "CONNECT").await;
    let is_denied = |reply: &Reply| reply.message().ends_with("denied the request: it leaks");
    servers.connect_until("wreck", is_denied).await;
    let review = json::parse(peer.seen().pop().unwrap().body()).unwrap();
    let request = &review["request"];
    assert_eq!(request["operation"].str(), "CONNECT");
    assert_eq!(request["kind"]["kind"].str(), "Boat");
    assert_eq!(request["subResource"].str(), "radio");
    for field in ["object", "oldObject", "options"] {
        assert!(request[field].is_null(), "{field}");
    }
    servers.connect_until("jolle", is_admitted).await;
}

/// A main server that serves boats of a server in its process.
async fn in_one_process() -> Rig {
    let main = Rig::new().await;
    let priority = Priority {
        group: 200,
        version: 7,
    };
    main.server.serve_locally(builder(), priority).unwrap();
    main
}

#[tokio::test(start_paused = true)]
async fn namespaces_and_policies_apply_to_a_server_of_the_same_process() {
    let main = in_one_process().await;
    let boats = BOATS.replace("default", "harbour");
    let boat = r#"{"metadata":{"generateName":"jolle-"},"feet":9}"#;
    let refused = main.post(&boats, boat).await.expect(404);
    assert_eq!(refused.message(), "namespaces \"harbour\" not found");
    let namespace = value!({ "metadata": { "name": "harbour" } });
    create(&main, "/api/v1/namespaces", &namespace).await;
    main.post(&boats, boat).await.expect(201);
    main.delete("/api/v1/namespaces/harbour", "")
        .await
        .expect(200);
    let refused = main.post(&boats, boat).await.expect(403);
    let causes = refused.body["details"]["causes"].list();
    assert_eq!(causes[0]["reason"].str(), "NamespaceTerminating");

    forbid_long_boats(&main).await;
    let refused = launch(&main, "dory", 9).await.expect(422);
    let message = refused.message();
    assert!(message.ends_with("too long"), "{message}");
    launch(&main, "dory", 8).await.expect(201);
}

#[tokio::test]
async fn webhooks_apply_to_a_server_of_the_same_process() {
    let main = in_one_process().await;
    let _peer = dock(&main).await;
    let boat = launch(&main, "jolle", 9).await.expect(201);
    assert_eq!((boat.body["feet"].int(), is_docked(&boat)), (8, true));
}

#[tokio::test(start_paused = true)]
async fn authorizers_apply_to_a_server_of_the_same_process() {
    let main = in_one_process().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |verbs: &str| {
        format!(
            r#"{{"metadata":{{"name":"sailor"}},"rules":[{{"apiGroups":["sea.example.com"],"resources":["boats"],"verbs":[{verbs}]}}]}}"#
        )
    };
    let roles = format!("{rbac}/roles");
    main.post(&roles, &role(r#""patch""#)).await.expect(201);
    let binding = r#"{"metadata":{"name":"sailor"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"sailor"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}"#;
    main.post(&format!("{rbac}/rolebindings"), binding)
        .await
        .expect(201);
    let apply = async || {
        let path = format!("{BOATS}/jolle?fieldManager=jane");
        let boat = r#"{"apiVersion":"sea.example.com/v1","kind":"Boat","metadata":{"name":"jolle"},"feet":9}"#;
        let jane = User::component("jane");
        main.call_as(jane, &[], "APPLY", &path, boat).await
    };
    // An apply that creates needs `create`, too.
    let refused = apply().await.expect(403);
    let message = refused.message();
    assert!(message.contains("cannot create resource"), "{message}");
    let both = role(r#""create","patch""#);
    main.patch(&format!("{roles}/sailor"), &both)
        .await
        .expect(200);
    apply().await.expect(201);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_main_one_accepts_any_namespace() {
    let own = Rig {
        server: builder().build().unwrap(),
    };
    let boats = BOATS.replace("default", "nowhere");
    let boat = r#"{"metadata":{"name":"jolle"},"feet":9}"#;
    own.post(&boats, boat).await.expect(201);
}
