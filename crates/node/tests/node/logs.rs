//! Container logs through the API server, over a real connection to the node and on real time.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use mizzen_apiserver::{ClientIdentity, Server, User};
use mizzen_node::{Options, Serving};
use mizzen_sdk::resource::{CONFIG_MAPS, PODS, SECRETS, SERVICES};
use mizzen_testing::{Builder, Cluster};
use mizzen_value::value;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::time::sleep;

use crate::fixtures::{create, get_pod, read, run_pod, show, text};

const WEB: &str = "containers: [{name: web, image: web}]";

/// A certificate authority for client certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> ClientIdentity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        ClientIdentity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A cluster whose server authenticates with `identity` to nodes that trust `authority`.
pub(crate) async fn cluster(authority: &Authority, identity: Option<ClientIdentity>) -> Cluster {
    cluster_with(authority, identity, |_, _| {}).await
}

/// The same on real time, with node options that are changed by `choose`.
pub(crate) async fn cluster_with(
    authority: &Authority,
    identity: Option<ClientIdentity>,
    choose: impl Fn(&Server, &mut Options) + Send + Sync + 'static,
) -> Cluster {
    let server = Cluster::builder().server_only().without_bootstrap();
    let cluster = server
        .real_time()
        .tune_server(move |options| options.kubelet_client = identity.clone())
        .start()
        .await;
    cluster.clock().step(1_700_000_000 - cluster.now());
    let clock = Arc::new(|| Timestamp::from_second(1_700_000_000).unwrap());
    let serving = Serving::bind(Ipv4Addr::LOCALHOST.into(), &authority.0.pem(), clock).await;
    let serving = Mutex::new(Some(serving.unwrap()));
    let server = cluster.server().clone();
    let serve = move |options: &mut Options| {
        options.serving = serving.lock().take();
        choose(&server, options);
    };
    cluster
        .restart_with(|builder| builder.nodes(3).tune_nodes(serve))
        .await;
    cluster
}

async fn trusted() -> Cluster {
    let authority = Authority::new();
    let identity = authority.sign("kube-apiserver-kubelet-client");
    cluster(&authority, Some(identity)).await
}

/// A transport whose watches of pods stall before the first event that contains `text`.
fn watch_without(server: &Server, text: &'static str) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let is_watch =
                parts.uri.path() == "/api/v1/pods" && parts.uri.to_string().contains("watch=true");
            let user = Some(User::master("admin"));
            let answer = server
                .call(user, parts.method, parts.uri, parts.headers, body)
                .await;
            let held_back = move |frame: &Frame<Bytes>| {
                let data = frame.data_ref().map(|data| String::from_utf8_lossy(data));
                is_watch && data.is_some_and(|data| data.contains(text))
            };
            Ok::<_, Infallible>(answer.map(|body| {
                let frames = BodyStream::new(body).then(move |frame| async move {
                    if frame.as_ref().is_ok_and(held_back) {
                        std::future::pending::<()>().await;
                    }
                    frame
                });
                StreamBody::new(frames).boxed_unsync()
            }))
        }
    });
    Client::new(service, "default")
}

/// Waits until the state of a pod is `wanted`.
pub(crate) async fn until(cluster: &Cluster, name: &str, wanted: &str) {
    for _ in 0..500 {
        if show(&get_pod(cluster, name).await).contains(wanted) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} is {}", show(&get_pod(cluster, name).await));
}

async fn log(cluster: &Cluster, pod: &str, query: &str) -> (u16, String) {
    let (code, text) = text(
        cluster,
        &format!("/api/v1/namespaces/default/pods/{pod}/log{query}"),
    )
    .await;
    match code {
        200 => (code, text),
        _ => (code, read(&text)["message"].str().to_string()),
    }
}

#[tokio::test]
async fn log_annotation_is_the_container_log() {
    let cluster = trusted().await;
    let annotations = r#"mizzen.dev/logs: "one\ntwo\n+1h later", mizzen.dev/logs.side: "mine""#;
    let spec = "containers: [{name: web, image: web}, {name: side, image: side}]";
    run_pod(&cluster, "web", annotations, spec).await;
    until(&cluster, "web", "ready=True").await;
    let good = |text: &str| (200, text.to_string());
    assert_eq!(
        log(&cluster, "web", "?container=web").await,
        good("one\ntwo\n")
    );
    assert_eq!(
        log(&cluster, "web", "?container=side").await,
        good("mine\n")
    );
    assert_eq!(
        log(&cluster, "web", "?container=web&tailLines=1").await,
        good("two\n")
    );
    assert_eq!(
        log(&cluster, "web", "?container=web&limitBytes=2").await,
        good("on")
    );
    assert_eq!(
        log(&cluster, "web", "").await,
        (
            400,
            "a container name must be specified for pod web, choose one of: [web side]".into()
        )
    );
}

#[tokio::test]
async fn follow_streams_until_the_container_ends() {
    let cluster = trusted().await;
    let annotations =
        r#"mizzen.dev/logs: "one\n+300ms two", mizzen.dev/simulate: "run 1500ms, exit""#;
    run_pod(
        &cluster,
        "web",
        annotations,
        &format!("restartPolicy: Never, {WEB}"),
    )
    .await;
    until(&cluster, "web", "running").await;
    assert_eq!(
        log(&cluster, "web", "?follow=true").await,
        (200, "one\ntwo\n".into())
    );
}

#[tokio::test]
async fn previous_log() {
    let cluster = trusted().await;
    let annotations = r#"mizzen.dev/logs: "hello", mizzen.dev/simulate: "exit 1 then run""#;
    run_pod(&cluster, "web", annotations, WEB).await;
    until(&cluster, "web", "web=running+1").await;
    assert_eq!(
        log(&cluster, "web", "?previous=true").await,
        (200, "hello\n".into())
    );
}

#[tokio::test]
async fn waiting_container_has_no_log() {
    let cluster = trusted().await;
    run_pod(&cluster, "web", r#"mizzen.dev/simulate: "start 1h""#, WEB).await;
    until(&cluster, "web", "ContainerCreating").await;
    let waits = "container \"web\" in pod \"web\" is waiting to start: ContainerCreating";
    assert_eq!(log(&cluster, "web", "").await, (400, waits.into()));
    assert_eq!(
        log(&cluster, "web", "?container=db").await,
        (400, "container db is not valid for pod web".into())
    );
    let previous = "previous terminated container \"web\" in pod \"web\" not found";
    assert_eq!(
        log(&cluster, "web", "?previous=true").await,
        (400, previous.into())
    );
}

#[tokio::test]
async fn log_needs_no_status_update() {
    let authority = Authority::new();
    let identity = authority.sign("kube-apiserver-kubelet-client");
    let cluster = cluster_with(&authority, Some(identity), |server, options| {
        options.client = watch_without(server, r#""phase":"Running""#);
    })
    .await;
    run_pod(&cluster, "web", r#"mizzen.dev/logs: "hello""#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    assert_eq!(log(&cluster, "web", "").await, (200, "hello\n".into()));
}

#[tokio::test]
async fn commands_see_config_maps_and_secrets() {
    let cluster = trusted().await;
    let greetings = "{metadata: {name: x}, data: {greeting: hello, other: there}}";
    create(&cluster, &CONFIG_MAPS, greetings).await;
    let secret = "{metadata: {name: s}, data: {pass: czNjcmV0Cg==}}";
    create(&cluster, &SECRETS, secret).await;
    let authority = "{metadata: {name: kube-root-ca.crt}, data: {ca.crt: authority}}";
    create(&cluster, &CONFIG_MAPS, authority).await;
    let service =
        "{metadata: {name: kubernetes}, spec: {clusterIP: 10.0.0.1, ports: [{port: 443}]}}";
    create(&cluster, &SERVICES, service).await;
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let script = format!(
        "echo $GREETING to $P_other; cat /s/pass; cat {account}/namespace; echo; cat {account}/ca.crt; echo; \
         ls {account}; cat /s/none; echo $?; printenv KUBERNETES_SERVICE_HOST; sleep 3600"
    );
    let sources = "[{serviceAccountToken: {path: token}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, \
                   {downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}}]";
    let spec = format!(
        "serviceAccountName: default, volumes: [{{name: s, secret: {{secretName: s}}}}, {{name: a, projected: {{sources: {sources}}}}}], \
         containers: [{{name: web, image: web, command: [sh, -c, {script:?}], \
         env: [{{name: GREETING, valueFrom: {{configMapKeyRef: {{name: x, key: greeting}}}}}}], \
         envFrom: [{{prefix: P_, configMapRef: {{name: x}}}}], \
         volumeMounts: [{{name: s, mountPath: /s}}, {{name: a, mountPath: {account}}}]}}]"
    );
    sleep(Duration::from_millis(500)).await;
    run_pod(&cluster, "web", "", &spec).await;
    until(&cluster, "web", "ready=True").await;
    let expected = "hello to there\ns3cret\ndefault\nauthority\nca.crt\nnamespace\ntoken\n\
                    cat: can't open '/s/none': No such file or directory\n1\n10.0.0.1\n";
    assert_eq!(log(&cluster, "web", "").await, (200, expected.into()));
}

#[tokio::test]
async fn each_restart_logs_its_own_environment() {
    let cluster = trusted().await;
    create(
        &cluster,
        &CONFIG_MAPS,
        "{metadata: {name: x}, data: {k: one}}",
    )
    .await;
    let env = "env: [{name: K, valueFrom: {configMapKeyRef: {name: x, key: k}}}]";
    let command = "command: [sh, -c, 'echo $K; sleep 2; exit 1']";
    run_pod(
        &cluster,
        "web",
        "",
        &format!("containers: [{{name: web, image: web, {env}, {command}}}]"),
    )
    .await;
    until(&cluster, "web", "web=running").await;
    let change = "{data: {k: two}}";
    cluster.patch(&CONFIG_MAPS, "default/x", "", change).await;
    assert_eq!(log(&cluster, "web", "").await, (200, "one\n".into()));
    until(&cluster, "web", "web=running+1").await;
    assert_eq!(log(&cluster, "web", "").await, (200, "two\n".into()));
    assert_eq!(
        log(&cluster, "web", "?previous=true").await,
        (200, "one\n".into())
    );
}

#[tokio::test]
async fn pod_without_node_has_no_log() {
    let cluster = trusted().await;
    create(
        &cluster,
        &PODS,
        &format!("{{metadata: {{name: web}}, spec: {{{WEB}}}}}"),
    )
    .await;
    assert_eq!(
        text(&cluster, "/api/v1/namespaces/default/pods/web/log").await,
        (204, String::new())
    );
    let (code, message) = log(&cluster, "nobody", "").await;
    assert_eq!((code, message.as_str()), (404, "pods \"nobody\" not found"));
}

#[tokio::test]
async fn unreachable_node_is_named() {
    let cluster = trusted().await;
    run_pod(&cluster, "web", "", WEB).await;
    until(&cluster, "web", "ready=True").await;
    cluster.restart_with(Builder::server_only).await;
    sleep(Duration::from_millis(50)).await;
    let (code, message) = log(&cluster, "web", "").await;
    assert_eq!(code, 500);
    assert!(message.starts_with("Get \"https://127.0.0.1:"), "{message}");
    assert!(
        message.contains("/containerLogs/default/web/web\": dial tcp 127.0.0.1:"),
        "{message}"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn nodes_serve_at_their_own_addresses() {
    let cluster = trusted().await;
    for at in 0..3 {
        let text = format!(
            "{{metadata: {{name: web-{at}, annotations: {{mizzen.dev/logs: on {at}}}}}, \
             spec: {{nodeName: node-{at}, {WEB}}}}}"
        );
        create(&cluster, &PODS, &text).await;
        let name = format!("web-{at}");
        until(&cluster, &name, "ready=True").await;
        let address = format!("127.0.0.{}", at + 1);
        let pod = get_pod(&cluster, &name).await;
        assert_eq!(pod["status"]["hostIP"].str(), address);
        assert_eq!(pod["status"]["hostIPs"][0]["ip"].str(), address);
        assert_eq!(log(&cluster, &name, "").await, (200, format!("on {at}\n")));
    }
}

#[tokio::test]
async fn unauthenticated_request_is_rejected() {
    let authority = Authority::new();
    let other = cluster(&authority, Some(authority.sign("jane"))).await;
    let nobody = cluster(&authority, None).await;
    for cluster in [&other, &nobody] {
        run_pod(cluster, "web", r#"mizzen.dev/logs: "secret""#, WEB).await;
        until(cluster, "web", "ready=True").await;
    }
    let (code, message) = log(&other, "web", "").await;
    assert_eq!(code, 403);
    assert!(
        message.starts_with("Forbidden (user=jane, verb=get, resource=nodes"),
        "{message}"
    );
    assert_eq!(log(&nobody, "web", "").await.0, 401);
}

/// The response of the node proxy: the status code, and the body or the message.
async fn proxied(cluster: &Cluster, node: usize, path: &str) -> (u16, String) {
    let path = format!("/api/v1/nodes/node-{node}/proxy{path}");
    text(cluster, &path).await
}

#[tokio::test]
async fn node_proxy_lists_pods() {
    let cluster = trusted().await;
    run_pod(&cluster, "web", r#"mizzen.dev/logs: "hello""#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    assert_eq!(proxied(&cluster, 0, "/healthz").await, (200, "ok".into()));
    let (code, pods) = proxied(&cluster, 0, "/pods").await;
    let pods = read(&pods);
    assert_eq!((code, pods["kind"].str()), (200, "PodList"));
    let [pod] = pods["items"].list() else {
        panic!("{pods:?}")
    };
    assert_eq!(pod["metadata"]["name"].str(), "web");
    assert_eq!(pod["status"]["phase"].str(), "Running");
    let (code, pods) = proxied(&cluster, 1, "/pods/").await;
    let pods = read(&pods);
    assert_eq!((code, pods["items"].list().len()), (200, 0));
    for (node, n_running) in [(0, 1), (1, 0)] {
        let (code, metrics) = proxied(&cluster, node, "/metrics").await;
        let name = format!("kubelet_node_name{{node=\"node-{node}\"}} 1\n");
        let running =
            format!("kubelet_running_containers{{container_state=\"running\"}} {n_running}\n");
        assert_eq!(code, 200);
        assert!(
            metrics.contains(&name) && metrics.contains(&running),
            "{metrics}"
        );
    }
    let (code, summary) = proxied(&cluster, 0, "/stats/summary").await;
    let summary = read(&summary);
    assert_eq!((code, summary["node"]["nodeName"].str()), (200, "node-0"));
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"]["name"].str(), "web");
    assert_eq!(pod["containers"][0]["name"].str(), "web");
    assert!(!pod["containers"][0]["startTime"].is_null());
    assert_eq!(
        proxied(&cluster, 0, "/containerLogs/default/web/web").await,
        (200, "hello\n".into())
    );
    for path in ["/", "/none"] {
        let answer = proxied(&cluster, 0, path).await;
        assert_eq!(answer, (404, "404 page not found\n".into()), "{path}");
    }
}

#[tokio::test]
async fn node_proxy_shows_what_a_kubelet_shows_for_debugging() {
    let cluster = trusted().await;
    run_pod(&cluster, "web", "", WEB).await;
    run_pod(&cluster, "slow", r#"mizzen.dev/simulate: "start 1h""#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    let (code, pods) = proxied(&cluster, 0, "/runningpods/").await;
    let web = get_pod(&cluster, "web").await;
    let expected = value!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [{
        "metadata": { "name": "web", "namespace": "default", "uid": (web.uid()) },
        "spec": { "containers": [{ "name": "web", "image": "web", "resources": {} }] },
        "status": {}
    }] });
    assert_eq!((code, &*read(&pods)), (200, &expected));
    let (code, configuration) = proxied(&cluster, 0, "/configz").await;
    let configuration = &read(&configuration)["kubeletconfig"];
    assert_eq!(
        (code, configuration["kind"].str()),
        (200, "KubeletConfiguration")
    );
    assert_eq!(configuration["maxPods"].int(), 110);
    assert_eq!(
        configuration["evictionHard"]["memory.available"].str(),
        "100Mi"
    );
    assert_eq!(
        configuration["streamingConnectionIdleTimeout"].str(),
        "4h0m0s"
    );
    for (path, code, said) in [
        ("/metrics/probes", 200, ""),
        ("/logs/", 405, "logs endpoint is disabled.\n"),
        (
            "/debug/pprof/heap",
            405,
            "profiling endpoint is disabled.\n",
        ),
        (
            "/checkpoint/default/web/web",
            405,
            "405: Method Not Allowed",
        ),
    ] {
        let answer = proxied(&cluster, 0, path).await;
        assert_eq!(answer, (code, said.into()), "{path}");
    }
}

#[tokio::test]
async fn node_proxy_reaches_pods_of_its_node_alone() {
    let cluster = trusted().await;
    run_pod(&cluster, "web", r#"mizzen.dev/logs: "hello""#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    let (logs, exec) = (
        "/containerLogs/default/web/web",
        "/exec/default/web/web?command=ls&output=1",
    );
    let metrics = "/metrics/nodes/node-0/metrics/resource";
    for (node, path, code, said) in [
        (0, logs, 200, "hello\n"),
        (1, logs, 404, "pod \"web\" does not exist"),
        (0, exec, 400, "Upgrade request required"),
        (1, exec, 404, "pod does not exist"),
        (1, "/portForward/default/web", 404, "pod does not exist"),
        (1, "/tunnel/default/web?port=80", 404, "pod does not exist"),
        (1, metrics, 404, "404 page not found\n"),
    ] {
        let answer = proxied(&cluster, node, path).await;
        assert_eq!(answer, (code, said.into()), "{node} {path}");
    }
    assert_eq!(proxied(&cluster, 0, metrics).await.0, 200);
}

#[tokio::test]
async fn node_proxy_is_authorized_by_subresource() {
    let authority = Authority::new();
    let cluster = cluster(&authority, Some(authority.sign("jane"))).await;
    run_pod(&cluster, "web", "", WEB).await;
    until(&cluster, "web", "ready=True").await;
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: figures}, rules: [{apiGroups: [''], resources: [nodes/metrics, nodes/pods], verbs: [get]}]}";
    cluster.create(role).await;
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: jane}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: figures}, \
                   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}";
    cluster.create(binding).await;
    for (path, refused) in [
        ("/metrics", ""),
        ("/pods", ""),
        ("/healthz/", "healthz proxy"),
        ("/stats/summary", "stats"),
        ("/containerLogs/default/web/web", "proxy"),
        ("/exec/default/web/web?command=ls", "proxy"),
    ] {
        let (code, text) = proxied(&cluster, 0, path).await;
        let said = format!(
            "Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[{refused}])\n"
        );
        match refused {
            "" => assert_eq!(code, 200, "{path}: {text}"),
            _ => assert_eq!((code, text), (403, said), "{path}"),
        }
    }
}

#[tokio::test]
async fn certificate_of_another_authority_is_rejected() {
    let identity = Authority::new().sign("kube-apiserver-kubelet-client");
    let cluster = cluster(&Authority::new(), Some(identity)).await;
    run_pod(&cluster, "web", r#"mizzen.dev/logs: "secret""#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    let (code, message) = log(&cluster, "web", "").await;
    assert_eq!(code, 500, "{message}");
}
