//! Flags of kube-apiserver, kube-controller-manager and kube-scheduler: accepted with their meaning or rejected by name.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use tokio::time::timeout;

use crate::client::{Client, dial};
use crate::process::{Home, STEP_TIMEOUT, command};

/// The output of a server that rejects its arguments.
async fn refusal(arguments: &[&str]) -> String {
    let failed = Home::in_memory().fail_with(arguments).await;
    assert!(!failed.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&failed.stderr).into_owned()
}

/// The output of a component that rejects its arguments.
async fn component_refusal(arguments: &[&str]) -> String {
    let output = command(arguments, Path::new("no.kubeconfig")).output();
    let failed: Output = timeout(STEP_TIMEOUT, output)
        .await
        .expect("it ends by itself")
        .unwrap();
    assert!(!failed.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&failed.stderr).into_owned()
}

#[tokio::test]
async fn secure_port_is_an_alias_of_port() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let text = refusal(&["--secure-port", &port.to_string()]).await;
    assert!(text.contains(&format!("port {port} is in use")), "{text}");
    let text = refusal(&["--secure-port", "1", "--port", "2"]).await;
    assert!(
        text.contains("'--secure-port <N>' cannot be used with '--port <N>'"),
        "{text}"
    );
    let text = refusal(&["--secure-port=0"]).await;
    assert!(
        text.contains("must be between 1 and 65535, inclusive; --port 0 picks a free port"),
        "{text}"
    );
}

#[tokio::test]
async fn the_pair_in_the_certificate_directory_is_written_and_used() {
    let home = Home::on_disk().with("--cert-dir=certs");
    let (certificate, key) = (
        home.path().join("certs/apiserver.crt"),
        home.path().join("certs/apiserver.key"),
    );
    home.start().await.stop().await;
    let written = std::fs::read_to_string(&certificate).unwrap();
    assert!(written.contains("BEGIN CERTIFICATE"), "{written}");
    let process = home.start().await;
    process.admin().await.get("/readyz").await.expect(200);
    process.stop().await;
    assert_eq!(std::fs::read_to_string(&certificate).unwrap(), written);

    std::fs::write(&certificate, "nonsense").unwrap();
    let text = String::from_utf8(home.fail_to_start(0).await.stderr).unwrap();
    assert!(text.contains("certs/apiserver.crt"), "{text}");
    std::fs::remove_file(&key).unwrap();
    let text = String::from_utf8(home.fail_to_start(0).await.stderr).unwrap();
    assert!(
        text.contains("certs/apiserver.key: certificate and key must be supplied as a pair"),
        "{text}"
    );
}

#[tokio::test]
async fn client_certificates_in_files_must_match_their_keys() {
    let home = Home::in_memory();
    std::fs::write(home.path().join("a.pem"), "nonsense").unwrap();
    for (certificate, key) in [
        ("--kubelet-client-certificate", "--kubelet-client-key"),
        ("--proxy-client-cert-file", "--proxy-client-key-file"),
    ] {
        let failed = home
            .fail_with(&["--port=0", certificate, "a.pem", key, "a.pem"])
            .await;
        let text = String::from_utf8_lossy(&failed.stderr);
        assert!(text.contains("a.pem: has no certificate in PEM"), "{text}");
    }
}

#[tokio::test]
async fn flags_that_installers_pass_are_accepted() {
    let home = Home::in_memory()
        .with("--allow-privileged=true")
        .with("--apiserver-count=1")
        .with("--authorization-mode=Node,RBAC")
        .with("--default-watch-cache-size=100")
        .with("--enable-bootstrap-token-auth=true")
        .with("--event-ttl=30m")
        .with("--feature-gates=SidecarContainers=true,AllAlpha=false")
        .with("--kubelet-port=10250")
        .with("--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname")
        .with("--kubelet-read-only-port=10255")
        .with("--profiling=false")
        .with("--runtime-config=autoscaling/v1=false")
        .with("--runtime-config=")
        .with("--service-node-port-range=30000-32767")
        .with("--v=2");
    let process = home.start().await;
    let admin = process.admin().await;
    admin.get("/apis/autoscaling/v1").await.expect(404);
    admin.get("/apis/autoscaling/v2").await.expect(200);
    process.stop().await;
}

#[tokio::test]
async fn neither_logs_nor_profiles_are_served() {
    let process = Home::in_memory()
        .with("--enable-logs-handler=false")
        .with("--profiling=false")
        .start()
        .await;
    let admin = process.admin().await;
    for path in [
        "/logs",
        "/logs/",
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/debug/pprof/profile",
        "/debug/flags/v",
    ] {
        admin.get(path).await.expect(404);
    }
    // Nor are metrics reset.
    let metrics = admin.call("DELETE", "/metrics", "").await.expect(200);
    assert!(metrics.text().contains("apiserver_request_total"));
    process.stop().await;
}

#[tokio::test]
async fn unsupported_flags_of_the_api_server_are_rejected_by_name() {
    for (argument, expected) in [
        (
            "--egress-selector-config-file=egress.yaml",
            "--egress-selector-config-file is not supported: connections are direct",
        ),
        (
            "--etcd-cafile=ca.crt",
            "'--in-memory' cannot be used with '--etcd-cafile <FILE>'",
        ),
        (
            "--etcd-servers-overrides=events#http://127.0.0.1:1",
            "is not GROUP/RESOURCE#URL;URL",
        ),
        (
            "--profiling=maybe",
            "invalid value 'maybe' for '--profiling",
        ),
        (
            "--contention-profiling",
            "--contention-profiling=true is not supported: blocking is not profiled",
        ),
        (
            "--kubelet-port=10255",
            "--kubelet-port=10255 is not supported: the port of a kubelet is that of its node's status",
        ),
        (
            "--default-watch-cache-size=0",
            "--default-watch-cache-size=0 is not supported: watches are sized automatically",
        ),
        (
            "--etcd-count-metric-poll-period=0s",
            "--etcd-count-metric-poll-period=0s is not supported: metrics count objects without polling",
        ),
        (
            "--kubernetes-service-node-port=80",
            "kubernetes service node port range 30000-32767 doesn't contain 80",
        ),
        (
            "--service-node-port-range=20-10",
            "end port cannot be less than start port",
        ),
        ("--feature-gates=Foo=true", "unrecognized feature gate: Foo"),
        (
            "--feature-gates=SidecarContainers=false",
            "feature is locked to true",
        ),
        (
            "--runtime-config=batch/v9=true",
            "--runtime-config: group version batch/v9 that has not been registered",
        ),
        (
            "--runtime-config=api/all=true",
            "asks for versions that are not available",
        ),
        ("--event-ttl=-1s", "negative"),
        (
            "--kubelet-client-key=nothing",
            "--kubelet-client-certificate",
        ),
        ("--v=many", "invalid value 'many' for '--v <LEVEL>'"),
        (
            "--never-heard-of",
            "unexpected argument '--never-heard-of' found",
        ),
    ] {
        let text = refusal(&["--port", "0", argument]).await;
        assert!(text.contains(expected), "{argument}: {text}");
    }
    let failed = Home::in_memory()
        .whole()
        .fail_with(&["--port=0", "--runtime-config=apps/v1=false"])
        .await;
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(
        text.contains("the controllers of `mizzen up` use apps/v1/"),
        "{text}"
    );
}

#[tokio::test]
async fn unsupported_flags_of_controllers_and_scheduler_are_rejected_by_name() {
    for (component, argument, expected) in [
        (
            "controllers",
            "--cloud-provider=aws",
            "--cloud-provider=aws is not supported: there is no cloud provider; run the provider's cloud-controller-manager",
        ),
        (
            "controllers",
            "--leader-elect-renew-deadline=20s",
            "--leader-elect-lease-duration: the lease must last a second, and longer than the leader tries to renew it",
        ),
        (
            "controllers",
            "--controllers=-deployment",
            "--controllers: no controller is enabled",
        ),
        (
            "controllers",
            "--controllers=nonsense",
            "there is no such controller",
        ),
        (
            "controllers",
            "--feature-gates=Foo=true",
            "unrecognized feature gate: Foo",
        ),
        (
            "controllers",
            "--node-eviction-rate=1",
            "the rate is 0.1 nodes per second",
        ),
        (
            "controllers",
            "--version",
            "--version is not supported: print it with mizzen --version",
        ),
        (
            "controllers",
            "--concurrent-gc-syncs=5",
            "the number of workers is fixed",
        ),
        (
            "controllers",
            "--concurrent-job-syncs=0",
            "invalid value '0' for '--concurrent-job-syncs <N>'",
        ),
        (
            "scheduler",
            "--leader-elect-resource-lock=configmaps",
            "'configmaps' for '--leader-elect-resource-lock",
        ),
    ] {
        let text = component_refusal(&[component, argument]).await;
        assert!(text.contains(expected), "{argument}: {text}");
    }
}

#[tokio::test]
async fn flags_of_controllers_and_scheduler_that_installers_pass_are_accepted() {
    let controllers = [
        "--allocate-node-cidrs=true",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--cluster-cidr=10.244.0.0/16",
        "--concurrent-deployment-syncs=9",
        "--node-monitor-grace-period=16s",
        "--terminated-pod-gc-threshold=-1",
        "--kube-api-qps=50",
        "--kube-api-burst=100",
        "--cluster-signing-duration=1h",
        "--cluster-signing-cert-file=",
        "--cluster-signing-key-file=",
    ];
    let scheduler = [
        "--leader-elect-lease-duration=15s",
        "--leader-elect-resource-lock=leases",
    ];
    for (component, arguments) in [
        ("controllers", &controllers[..]),
        ("scheduler", &scheduler[..]),
    ] {
        let mut all = vec![
            component,
            "--leader-elect=false",
            "--v=2",
            "--profiling=false",
        ];
        all.extend(arguments);
        let text = component_refusal(&all).await;
        assert!(
            text.contains("no.kubeconfig"),
            "only the kubeconfig is missing: {text}"
        );
    }
}

fn pod(context: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{{"name":"c","image":"i","securityContext":{context}}}]}}}}"#
    )
}

#[tokio::test]
async fn a_flag_rejects_privileged_containers() {
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let process = Home::in_memory()
        .with("--allow-privileged=false")
        .start()
        .await;
    let admin = process.admin().await;
    admin
        .post(pods, pod(r#"{"privileged":false}"#))
        .await
        .expect(201);
    let refused = admin
        .post(pods, pod(r#"{"privileged":true}"#))
        .await
        .expect(422)
        .json();
    let message = "Pod \"p\" is invalid: spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy";
    assert_eq!(refused["message"], message);
    let host = r#"{"windowsOptions":{"hostProcess":true}}"#;
    let refused = admin.post(pods, pod(host)).await.expect(422).json();
    let message = refused["message"].as_str().unwrap();
    let expected = "spec: Forbidden: hostProcess containers are disallowed by cluster policy";
    assert!(message.contains(expected), "{message}");
    process.stop().await;

    let process = Home::in_memory().start().await;
    process
        .admin()
        .await
        .post(pods, pod(r#"{"privileged":true}"#))
        .await
        .expect(201);
    process.stop().await;
}

#[tokio::test]
async fn flags_set_default_toleration_seconds() {
    let process = Home::in_memory()
        .with("--default-not-ready-toleration-seconds=7")
        .with("--default-unreachable-toleration-seconds=8")
        .start()
        .await;
    let admin = process.admin().await;
    let made = admin
        .post("/api/v1/namespaces/default/pods", pod("{}"))
        .await
        .expect(201)
        .json();
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    let seconds: Vec<_> = tolerations
        .iter()
        .map(|one| {
            (
                one["key"].as_str().unwrap(),
                one["tolerationSeconds"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seconds,
        [
            ("node.kubernetes.io/not-ready", 7),
            ("node.kubernetes.io/unreachable", 8)
        ]
    );
    process.stop().await;
}

#[tokio::test]
async fn flags_set_node_ports_and_the_kubernetes_service() {
    let process = Home::in_memory()
        .with("--service-node-port-range=20000-20009")
        .with("--kubernetes-service-node-port=20007")
        .with("--external-hostname=api.example.com")
        .start()
        .await;
    let admin = process.admin().await;
    let services = "/api/v1/namespaces/default/services";
    let own = admin
        .get(&format!("{services}/kubernetes"))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&own["spec"]["type"], &own["spec"]["ports"][0]["nodePort"]),
        (&"NodePort".into(), &20007.into())
    );
    let service = r#"{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":80}]}}"#;
    let made = admin.post(services, service).await.expect(201).json();
    let port = made["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    assert!((20000..=20009).contains(&port) && port != 20007, "{port}");
    let wrong = r#"{"metadata":{"name":"t"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30000}]}}"#;
    let refused = admin.post(services, wrong).await.expect(422).json();
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.ends_with("The range of valid ports is 20000-20009"),
        "{message}"
    );
    let versions = admin.get("/api").await.expect(200).json();
    let address = versions["serverAddressByClientCIDRs"][0]["serverAddress"]
        .as_str()
        .unwrap();
    assert!(address.starts_with("api.example.com:"), "{address}");
    process.stop().await;
}

#[tokio::test]
async fn flags_disable_http2_and_the_endpoint_reconciler() {
    let home = Home::in_memory()
        .with("--disable-http2-serving")
        .with("--endpoint-reconciler-type=none");
    let process = home.start().await;
    let stream = dial(&process.address, &process.credentials, &["h2", "http/1.1"]).await;
    assert_eq!(
        stream.get_ref().1.alpn_protocol(),
        Some(b"http/1.1".as_slice())
    );
    let admin = Client::connect(&process.address, &process.credentials, &["http/1.1"]).await;
    admin
        .get("/api/v1/namespaces/default/services/kubernetes")
        .await
        .expect(200);
    admin
        .get("/api/v1/namespaces/default/endpoints/kubernetes")
        .await
        .expect(404);
    process.stop().await;
}

#[tokio::test]
async fn a_flag_serves_the_logs_of_the_host() {
    let process = Home::in_memory()
        .with("--enable-logs-handler")
        .start()
        .await;
    let admin = process.admin().await;
    assert!(
        admin
            .get("/logs/")
            .await
            .expect(200)
            .text()
            .starts_with("<!doctype html>")
    );
    admin.get("/logs/no-such-file").await.expect(404);
    admin
        .get("/logs/%2e%2e/%2e%2e/etc/passwd")
        .await
        .expect(400);
    admin.call("DELETE", "/logs/", "").await.expect(405);
    process.anonymous().await.get("/logs/").await.expect(403);
    assert!(
        admin
            .get("/")
            .await
            .expect(200)
            .text()
            .contains("\"/logs\"")
    );
    process.stop().await;
}

#[tokio::test]
async fn a_flag_verifies_serving_certificates_of_kubelets() {
    let home = Home::on_disk().whole();
    let process = home.start().await;
    process.stop().await;
    // The nodes have self-signed certificates, which the authority of the cluster does not verify.
    let home = home.with("--kubelet-certificate-authority=data/ca.crt");
    let process = home.start().await;
    let admin = process.admin().await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut events = admin.watch(&format!("{pods}?watch=true")).await;
    admin.post(pods, pod("{}")).await.expect(201);
    while events.next().await.expect("an event")["object"]["status"]["phase"] != "Running" {}
    let refused = admin.get(&format!("{pods}/p/log")).await.expect(500).json();
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.contains("x509: certificate signed by unknown authority"),
        "{message}"
    );
    process.stop().await;
}
