//! An aggregated API server: namespaces, policies, webhooks and authorities of the main server apply to its kinds.

use std::time::Duration;

use mizzen_apiserver::delegate::{Serving, Upstream};
use mizzen_apiserver::{ClientIdentity, Server};
use mizzen_outgoing::{OutgoingClient, Target, Trust, whole};
use mizzen_registry::Store;
use mizzen_value::{json, value};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::network::{Authority, Network};
use crate::own::{BOATS, builder, launch};
use crate::peer::{Peer, Reaction};
use crate::rig::{Reply, Rig, registry};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A main server, and an aggregated one that follows it.
struct Aggregated {
    main: Rig,
    own: Rig,
    _network: Network,
    follower: JoinHandle<()>,
}

impl Aggregated {
    async fn start() -> Aggregated {
        let main = Rig::new().await;
        let network = Network::start(&main.server).await;
        let upstream = load(&network.kubeconfig());
        let server = builder().upstream(&upstream).build().unwrap();
        let followed = upstream.clone();
        let follower = tokio::spawn(async move { followed.follow().await });
        Aggregated {
            main,
            own: Rig { server },
            _network: network,
            follower,
        }
    }

    /// Creates an object on the main server.
    async fn create(&self, path: &str, object: &mizzen_value::Value) {
        let text = json::to_string(object);
        self.main.post(path, &text).await.expect(201);
    }

    /// Launches boats until the answer has this code: the main server's state arrives a little later.
    async fn launch_until(&self, name: &str, code: u16) -> Reply {
        let tries = async {
            loop {
                let reply = launch(&self.own, name, 9).await;
                if reply.status == code {
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

impl Drop for Aggregated {
    fn drop(&mut self) {
        self.follower.abort();
    }
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
    servers.create(&policies, &policy).await;
    let params = value!({ "metadata": { "name": "limits" }, "data": { "max": "8" } });
    let config_maps = "/api/v1/namespaces/default/configmaps";
    servers.create(config_maps, &params).await;
    let binding = value!({
        "metadata": { "name": "short" },
        "spec": {
            "policyName": "short", "validationActions": ["Deny"],
            "paramRef": { "name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny" },
        },
    });
    let bindings = format!("{REGISTRATION}/validatingadmissionpolicybindings");
    servers.create(&bindings, &binding).await;
    let refused = servers.launch_until("dory", 422).await;
    assert!(
        refused.message().ends_with("too long"),
        "{}",
        refused.message()
    );

    // Parameters are read when they are needed.
    let longer = r#"{"data":{"max":"20"}}"#;
    let limits = format!("{config_maps}/limits");
    servers.main.patch(&limits, longer).await.expect(200);
    launch(&servers.own, "dory", 9).await.expect(201);
}

#[tokio::test]
async fn webhooks_of_the_main_server_are_called() {
    let servers = Aggregated::start().await;
    let peer = Peer::start(&["localhost"], |request| {
        let review = json::parse(request.body()).unwrap();
        let request = &review["request"];
        let is_allowed = request["object"]["metadata"]["name"].str() != "wreck";
        let response = value!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {
                "uid": (request["uid"].clone()), "allowed": is_allowed, "status": { "message": "it leaks" },
            },
        });
        Reaction::Reply(200, json::to_string(&response))
    })
    .await;
    let configuration = value!({
        "metadata": { "name": "seaworthy" },
        "webhooks": [{
            "name": "seaworthy.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": (format!("https://localhost:{}/", peer.port)), "caBundle": (peer.bundle()) },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "default" } },
            "rules": [{
                "apiGroups": ["sea.example.com"], "apiVersions": ["*"], "resources": ["boats"],
                "operations": ["CREATE"],
            }],
        }],
    });
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    servers.create(&path, &configuration).await;
    let refused = servers.launch_until("wreck", 400).await;
    let message = r#"admission webhook "seaworthy.example.com" denied the request: it leaks"#;
    assert!(refused.message().contains(message), "{}", refused.message());
    launch(&servers.own, "jolle", 9).await.expect(201);
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

/// The code of a request with a client certificate.
async fn code(port: u16, identity: ClientIdentity) -> u16 {
    let registry = registry(Store::in_memory(Default::default()));
    let client = OutgoingClient::plain(&registry, Some(identity));
    let target = Target {
        address: format!("127.0.0.1:{port}"),
        server_name: "localhost".into(),
        trust: Trust::Anyone,
        as_front_proxy: true,
        http2: false,
    };
    let request = http::Request::get(format!("https://localhost:{port}{BOATS}"));
    let request = request.body(whole("".into())).unwrap();
    let response = client.send(&target, request).await.unwrap();
    response.status().as_u16()
}

#[tokio::test]
async fn authorities_of_the_main_server_are_followed() {
    let servers = Aggregated::start().await;
    let [first, second] = [Authority::new(), Authority::new()];
    let namespace = value!({ "metadata": { "name": "kube-system" } });
    servers.create("/api/v1/namespaces", &namespace).await;
    let config_maps = "/api/v1/namespaces/kube-system/configmaps";
    let name = "extension-apiserver-authentication";
    let trusting = |authority: &Authority| value!({ "metadata": { "name": (name) }, "data": { "client-ca-file": (authority.pem.as_str()) } });
    servers.create(config_maps, &trusting(&first)).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server: Server = servers.own.server.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = Serving {
        listener,
        identity: Authority::new().identity(),
    };
    let running = tokio::spawn(server.run(serving, async { drop(stopped.await) }));
    // The main server does not know the user `admin`, who is in no group.
    assert_eq!(code(port, first.identity()).await, 403);
    assert_eq!(code(port, second.identity()).await, 401);

    let path = format!("{config_maps}/{name}");
    let text = json::to_string(&trusting(&second));
    servers.main.patch(&path, &text).await.expect(200);
    let followed = async {
        while code(port, second.identity()).await != 403 {
            tokio::task::yield_now().await;
        }
    };
    timeout(STEP_TIMEOUT, followed).await.expect("it arrives");
    assert_eq!(code(port, first.identity()).await, 401);
    drop(stop);
    timeout(STEP_TIMEOUT, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}
