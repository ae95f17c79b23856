//! Exec, attach and port-forward over a real connection: authorization, errors before the upgrade, and sessions.

use std::sync::Arc;
use std::time::Duration;

use mizzen_apiserver::{AnyServerCertificate, ClientIdentity, User};
use mizzen_sdk::resource::NODES;
use mizzen_testing::{Builder, Cluster};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::fixtures::{get_pod, run_pod, text};
use crate::logs::{Authority, cluster, cluster_with, until};

const WEB: &str = "containers: [{name: web, image: web, ports: [{containerPort: 80}]}]";

/// A cluster with the pod `web`, and the client CA of its node.
async fn start() -> (Cluster, Authority) {
    let authority = Authority::new();
    let cluster = cluster(&authority, None).await;
    run_pod(&cluster, "web", r#"mizzen.dev/http: hello"#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    (cluster, authority)
}

pub(crate) async fn dial(
    cluster: &Cluster,
    identity: Option<ClientIdentity>,
) -> TlsStream<TcpStream> {
    let node = cluster.object(&NODES, "node-0").await;
    let port =
        u16::try_from(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].int()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServerCertificate(provider)));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(ClientIdentity { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            builder
                .with_client_auth_cert(
                    chain,
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap()
        }
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    TlsConnector::from(Arc::new(config))
        .connect("127.0.0.1".try_into().unwrap(), stream)
        .await
        .unwrap()
}

/// Sends a POST and reads the head of the response, and the body if there is one.
async fn ask(
    stream: &mut TlsStream<TcpStream>,
    path: &str,
    headers: &str,
) -> (u16, String, String) {
    call(stream, "POST", path, headers).await
}

/// Sends a request and reads the head of the response, and the body if there is one.
pub(crate) async fn call(
    stream: &mut TlsStream<TcpStream>,
    method: &str,
    path: &str,
    headers: &str,
) -> (u16, String, String) {
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    let code = head[9..12].parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.filter(|_| code != 101).unwrap_or(0)];
    stream.read_exact(&mut body).await.unwrap();
    (code, head, String::from_utf8(body).unwrap())
}

const SPDY: &str =
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

#[tokio::test]
async fn streams_need_the_api_server_certificate() {
    let (cluster, authority) = start().await;
    for path in [
        "/exec/default/web/web?command=true&output=1",
        "/attach/default/web/web?output=1",
        "/portForward/default/web",
        "/tunnel/default/web?port=80",
    ] {
        let (code, ..) = ask(&mut dial(&cluster, None).await, path, SPDY).await;
        assert_eq!(code, 401, "{path}");
        let (code, ..) = ask(
            &mut dial(&cluster, Some(authority.sign("jane"))).await,
            path,
            SPDY,
        )
        .await;
        assert_eq!(code, 403, "{path}");
    }
}

#[tokio::test]
async fn a_client_reaches_pods_of_the_node_that_it_may_use() {
    let (cluster, authority) = start().await;
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: one}, \
                rules: [{apiGroups: [''], resources: [nodes/proxy], resourceNames: [node-1], verbs: [create]}]}";
    let binding = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: jane}, \
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: one}, \
                   subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]}";
    cluster.create(role).await;
    cluster.create(binding).await;
    let mut stream = dial(&cluster, Some(authority.sign("jane"))).await;
    for (named, code) in [("node-0", 403), ("node-1", 404), ("none", 403)] {
        let headers = format!("{SPDY}X-Forwarded-Uri: /api/v1/nodes/{named}/proxy/x\r\n");
        let exec = "/exec/default/web/web?command=true&output=1";
        let (found, _, body) = ask(&mut stream, exec, &headers).await;
        assert_eq!(found, code, "{named}: {body}");
    }
}

#[tokio::test]
async fn invalid_stream_request_fails_before_the_upgrade() {
    let (cluster, authority) = start().await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let exec = "/exec/default/web/web?command=true";
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n";
    let odd = format!("{websocket}Sec-WebSocket-Protocol: v9.channel.k8s.io\r\n");
    for (path, headers, code, said) in [
        (
            exec,
            SPDY,
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        (
            "/exec/default/none/web?output=1",
            SPDY,
            404,
            "pod does not exist",
        ),
        (
            "/exec/default/web/db?output=1",
            SPDY,
            500,
            "container not found (\"db\")",
        ),
        (
            "/attach/default/web/db?output=1",
            SPDY,
            500,
            "container db not found in pod web_default",
        ),
        (
            &format!("{exec}&output=1"),
            "",
            400,
            "Upgrade request required",
        ),
        (
            &format!("{exec}&output=1"),
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n",
            400,
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request",
        ),
        (
            &format!("{exec}&output=1"),
            "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v9.channel.k8s.io\r\n",
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io], server accepts [v4",
        ),
        (
            &format!("{exec}&output=1"),
            &odd,
            403,
            "requested protocol(s) are not supported: [v9.channel.k8s.io]",
        ),
        (
            "/portForward/default/web",
            websocket,
            400,
            "query parameter \"port\" is required",
        ),
        (
            "/portForward/default/web?port=0",
            websocket,
            400,
            "port \"0\" must be > 0",
        ),
        (
            "/tunnel/default/web?port=80",
            "",
            400,
            "Upgrade request required",
        ),
        (
            "/tunnel/default/web?port=81",
            "Connection: Upgrade\r\nUpgrade: tcp\r\n",
            502,
            "connect: connection refused",
        ),
        ("/exec/default/web", SPDY, 404, "404 page not found"),
    ] {
        let (found, head, body) = ask(&mut stream, path, headers).await;
        assert_eq!(found, code, "{path}: {head}{body}");
        assert!(body.starts_with(said), "{path}: {body}");
    }
}

#[tokio::test]
async fn websocket_exec_reports_output_and_exit() {
    let (cluster, authority) = start().await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let headers = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n";
    let path =
        "/exec/default/web/web?command=sh&command=-c&command=echo+hi%3B+exit+3&output=1&error=1";
    let (code, head, _) = ask(&mut stream, path, headers).await;
    assert_eq!(code, 101);
    assert!(
        head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"),
        "{head}"
    );
    assert!(
        head.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"),
        "{head}"
    );
    let mut frames = Vec::new();
    stream.read_to_end(&mut frames).await.unwrap();
    let frames = String::from_utf8_lossy(&frames).into_owned();
    assert!(frames.contains("\u{1}hi"), "{frames}");
    let status = r#"{"status":"Failure","message":"command terminated with non-zero exit code: exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    assert!(frames.contains(status), "{frames}");
}

#[tokio::test]
async fn exec_ends_with_its_container() {
    let (cluster, authority) = start().await;
    let spec = "restartPolicy: Never, containers: [{name: web, image: web}]";
    run_pod(
        &cluster,
        "short",
        r#"mizzen.dev/simulate: "run 2s, exit""#,
        spec,
    )
    .await;
    until(&cluster, "short", "ready=True").await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\
                   Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n";
    let path = "/exec/default/short/web?command=sleep&command=1000&output=1";
    let (code, ..) = ask(&mut stream, path, headers).await;
    assert_eq!(code, 101);
    let mut frames = Vec::new();
    stream.read_to_end(&mut frames).await.unwrap();
    let frames = String::from_utf8_lossy(&frames).into_owned();
    assert!(
        frames.contains(r#"{"reason":"ExitCode","message":"137"}"#),
        "{frames}"
    );
}

const WEBSOCKET_V5: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                            Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n";

/// Sends a WebSocket message: the channel byte and the data.
async fn send(stream: &mut TlsStream<TcpStream>, message: &[u8]) {
    let length = u8::try_from(message.len()).unwrap() | 0x80;
    let frame = [&[0x82, length, 0, 0, 0, 0], message].concat();
    stream.write_all(&frame).await.unwrap();
}

/// Reads from a session until the output contains `end`.
async fn read_until(stream: &mut TlsStream<TcpStream>, end: &str) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if text.contains(end) {
            return text;
        }
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => panic!("{end} is not in {text:?}"),
        }
    }
}

#[tokio::test]
async fn attach_feeds_stdin_until_it_is_closed() {
    let (cluster, authority) = start().await;
    let reads = "command: [sh, -c, 'while read -r x; do echo got $x; done; exit 3']";
    let spec = format!(
        "restartPolicy: Never, containers: [{{name: web, image: web, stdin: true, stdinOnce: true, {reads}}}]"
    );
    run_pod(&cluster, "reads", "", &spec).await;
    until(&cluster, "reads", "ready=True").await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let path = "/attach/default/reads/web?input=1&output=1&error=1";
    let (code, ..) = ask(&mut stream, path, WEBSOCKET_V5).await;
    assert_eq!(code, 101);
    send(&mut stream, b"\0one\ntw").await;
    read_until(&mut stream, "\u{1}got one").await;
    send(&mut stream, b"\0o\n").await;
    read_until(&mut stream, "\u{1}got two").await;
    send(&mut stream, b"\xff\0").await;
    read_until(&mut stream, r#"{"status":"Success"}"#).await;
    until(&cluster, "reads", "Error(3)").await;
}

#[tokio::test]
async fn tty_shell_outlives_its_clients() {
    let authority = Authority::new();
    let cluster = cluster(&authority, Some(authority.sign(KUBELET_CLIENT))).await;
    let spec = "restartPolicy: Never, containers: [{name: web, image: web, stdin: true, tty: true, command: [sh]}]";
    run_pod(&cluster, "shell", "", spec).await;
    until(&cluster, "shell", "ready=True").await;
    let attach = async |typed: &[u8], end: &str| {
        let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
        let path = "/attach/default/shell/web?input=1&output=1&tty=1";
        let (code, ..) = ask(&mut stream, path, WEBSOCKET_V5).await;
        assert_eq!(code, 101);
        send(&mut stream, typed).await;
        read_until(&mut stream, end).await;
    };
    // The terminal echoes the input, and the next prompt follows.
    attach(b"\0X=1; nginx\r", "sh: nginx: not found\r\n").await;
    attach(b"\0echo x$X\r", "x1").await;
    let (_, log) = text(&cluster, "/api/v1/namespaces/default/pods/shell/log").await;
    let lines = [
        "# X=1; nginx\r",
        "sh: nginx: not found\r",
        "# echo x$X\r",
        "x1\r",
    ];
    assert_eq!(log.split_terminator('\n').collect::<Vec<_>>(), lines);
    attach(b"\0exit 7\r", r#"{"status":"Success"}"#).await;
    until(&cluster, "shell", "Error(7)").await;
}

#[tokio::test]
async fn port_forward_connects_to_a_port() {
    let (cluster, authority) = start().await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let (code, ..) = ask(
        &mut stream,
        "/tunnel/default/web?port=80",
        "Connection: Upgrade\r\nUpgrade: tcp\r\n",
    )
    .await;
    assert_eq!(code, 101);
    let (code, _, body) = ask(&mut stream, "/any", "Connection: close\r\n").await;
    assert_eq!((code, body.as_str()), (200, "hello"));
}

#[tokio::test]
async fn the_links_of_a_proxied_page_lead_through_the_proxy() {
    let authority = Authority::new();
    let cluster = cluster(&authority, Some(authority.sign(KUBELET_CLIENT))).await;
    let pages = r#"mizzen.dev/http: '{
        "/": {"headers": {"Content-Type": "text/html"}, "body": "<a href=/next>next</a>"},
        "/plain": "<a href=/next>next</a>",
        "/old": {"status": 302, "headers": {"Location": "/new/"}}
    }'"#;
    run_pod(&cluster, "site", pages, WEB).await;
    until(&cluster, "site", "ready=True").await;
    let proxy = "/api/v1/namespaces/default/pods/site/proxy";
    let (_, page) = text(&cluster, &format!("{proxy}/")).await;
    assert_eq!(page, format!("<a href={proxy}/next>next</a>"));
    let (_, page) = text(&cluster, &format!("{proxy}/plain")).await;
    assert_eq!(page, "<a href=/next>next</a>");
    let (get, user) = (http::Method::GET, Some(User::master("admin")));
    let path = format!("{proxy}/old").parse().unwrap();
    let server = cluster.server();
    let moved = server
        .call(user, get, path, Default::default(), Default::default())
        .await;
    assert_eq!(moved.headers()["location"], format!("{proxy}/new/"));
}

#[tokio::test]
async fn streams_end_with_the_agent() {
    let (cluster, authority) = start().await;
    let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
    let (code, ..) = ask(
        &mut stream,
        "/attach/default/web/web?output=1",
        &SPDY.replace("SPDY/3.1", "spdy/3.1"),
    )
    .await;
    assert_eq!(code, 101);
    cluster.restart_with(Builder::server_only).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn idle_streams_are_closed_after_the_time_of_the_node() {
    let authority = Authority::new();
    let cluster = cluster_with(&authority, None, |_, options| {
        options.streaming_idle_timeout = Duration::from_millis(300);
    })
    .await;
    run_pod(&cluster, "web", r#"mizzen.dev/http: hello"#, WEB).await;
    until(&cluster, "web", "ready=True").await;
    let tunnel = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
    let normal_closure = [0x88, 2, 0x03, 0xe8];
    for (path, headers, end) in [
        (
            "/attach/default/web/web?output=1",
            WEBSOCKET_V5,
            &normal_closure[..],
        ),
        (
            "/exec/default/web/web?command=sleep&command=1000&output=1",
            WEBSOCKET_V5,
            &normal_closure,
        ),
        ("/tunnel/default/web?port=80", tunnel, &[]),
    ] {
        let mut stream = dial(&cluster, Some(authority.sign(KUBELET_CLIENT))).await;
        let (code, ..) = ask(&mut stream, path, headers).await;
        assert_eq!(code, 101, "{path}");
        let mut frames = Vec::new();
        // A tunnel ends without a goodbye.
        let _ = stream.read_to_end(&mut frames).await;
        assert!(frames.ends_with(end), "{path}: {frames:?}");
    }
}

#[tokio::test]
async fn invalid_annotation_fails_the_pod() {
    let (cluster, _) = start().await;
    run_pod(&cluster, "bad", r#"mizzen.dev/http: "/: {status: 1}""#, WEB).await;
    until(&cluster, "bad", "Failed").await;
    let pod = get_pod(&cluster, "bad").await;
    assert_eq!(pod["status"]["reason"].str(), "InvalidSimulation");
    assert!(
        pod["status"]["message"]
            .str()
            .contains("mizzen.dev/http: /: 1 is not a status")
    );
}
