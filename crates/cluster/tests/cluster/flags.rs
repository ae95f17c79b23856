//! Flags of kube-apiserver, kube-controller-manager and kube-scheduler: accepted with their meaning or refused by name.

use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use tokio::time::timeout;

use crate::process::{Home, PATIENCE, command};

/// What a server writes that refuses its arguments.
async fn refusal(arguments: &[&str]) -> String {
    let failed = Home::in_memory().fail_with(arguments).await;
    assert!(!failed.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&failed.stderr).into_owned()
}

/// What a component writes that refuses its arguments.
async fn component_refusal(arguments: &[&str]) -> String {
    let output = command(arguments, Path::new("no.kubeconfig")).output();
    let failed: Output = timeout(PATIENCE, output).await.expect("it ends by itself").unwrap();
    assert!(!failed.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&failed.stderr).into_owned()
}

#[tokio::test]
async fn the_secure_port_is_the_port() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let text = refusal(&["--secure-port", &port.to_string()]).await;
    assert!(text.contains(&format!("port {port} is in use")), "{text}");
    let text = refusal(&["--secure-port", "1", "--port", "2"]).await;
    assert!(text.contains("'--secure-port <N>' cannot be used with '--port <N>'"), "{text}");
    let text = refusal(&["--secure-port=0"]).await;
    assert!(text.contains("must be between 1 and 65535, inclusive; --port 0 picks a free port"), "{text}");
}

#[tokio::test]
async fn the_pair_in_the_certificate_directory_is_written_and_used() {
    let home = Home::on_disk().with("--cert-dir=certs");
    let (certificate, key) =
        (home.path().join("certs/apiserver.crt"), home.path().join("certs/apiserver.key"));
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
    assert!(text.contains("certs/apiserver.key: certificate and key must be supplied as a pair"), "{text}");
}

#[tokio::test]
async fn client_certificates_in_files_must_fit_their_keys() {
    let home = Home::in_memory();
    std::fs::write(home.path().join("a.pem"), "nonsense").unwrap();
    for (certificate, key) in [
        ("--kubelet-client-certificate", "--kubelet-client-key"),
        ("--proxy-client-cert-file", "--proxy-client-key-file"),
    ] {
        let failed = home.fail_with(&["--port=0", certificate, "a.pem", key, "a.pem"]).await;
        let text = String::from_utf8_lossy(&failed.stderr);
        assert!(text.contains("a.pem: has no certificate in PEM"), "{text}");
    }
}

#[tokio::test]
async fn flags_that_installers_pass_are_accepted() {
    let home = Home::in_memory()
        .with("--allow-privileged=true")
        .with("--authorization-mode=Node,RBAC")
        .with("--enable-bootstrap-token-auth=true")
        .with("--event-ttl=30m")
        .with("--feature-gates=SidecarContainers=true,AllAlpha=false")
        .with("--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname")
        .with("--profiling=false")
        .with("--runtime-config=autoscaling/v1=false")
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
    let process =
        Home::in_memory().with("--enable-logs-handler=false").with("--profiling=false").start().await;
    let admin = process.admin().await;
    for path in ["/logs", "/logs/", "/debug/pprof", "/debug/pprof/", "/debug/pprof/heap"] {
        admin.get(path).await.expect(404);
    }
    process.stop().await;
}

#[tokio::test]
async fn flags_of_the_api_server_are_refused_by_name() {
    for (argument, expected) in [
        (
            "--etcd-servers=http://127.0.0.1:2379",
            "--etcd-servers is not supported: etcd is not used; store objects in a directory with --data-dir",
        ),
        (
            "--allow-privileged=false",
            "--allow-privileged=false is not supported: privileged containers pass validation",
        ),
        (
            "--enable-logs-handler",
            "--enable-logs-handler=true is not supported: logs are written to standard error",
        ),
        ("--profiling=true", "--profiling=true is not supported: there are no Go profiles"),
        ("--feature-gates=Foo=true", "unrecognized feature gate: Foo"),
        ("--feature-gates=SidecarContainers=false", "feature is locked to true"),
        (
            "--runtime-config=batch/v9=true",
            "--runtime-config: group version batch/v9 that has not been registered",
        ),
        ("--runtime-config=api/all=true", "asks for versions that are not available"),
        ("--event-ttl=-1s", "negative"),
        ("--kubelet-client-key=nothing", "--kubelet-client-certificate"),
        ("--v=many", "invalid value 'many' for '--v <LEVEL>'"),
        ("--never-heard-of", "unexpected argument '--never-heard-of' found"),
    ] {
        let text = refusal(&["--port", "0", argument]).await;
        assert!(text.contains(expected), "{argument}: {text}");
    }
    let failed = Home::in_memory().whole().fail_with(&["--port=0", "--runtime-config=apps/v1=false"]).await;
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(text.contains("the controllers of `mizzen up` use apps/v1/"), "{text}");
}

#[tokio::test]
async fn flags_of_controllers_and_scheduler_are_refused_by_name() {
    for (component, argument, expected) in [
        (
            "controllers",
            "--use-service-account-credentials=true",
            "--use-service-account-credentials=true is not supported: all controllers use the credentials of --kubeconfig",
        ),
        (
            "controllers",
            "--authentication-kubeconfig=file",
            "--authentication-kubeconfig is not supported: the controllers serve no requests",
        ),
        ("controllers", "--controllers=-deployment", "--controllers: no controller is enabled"),
        ("controllers", "--controllers=nonsense", "there is no such loop"),
        ("controllers", "--feature-gates=Foo=true", "unrecognized feature gate: Foo"),
        (
            "scheduler",
            "--bind-address=127.0.0.1",
            "--bind-address is not supported: the scheduler serves no requests",
        ),
        ("controllers", "--node-monitor-grace-period=10s", "the period is 50 seconds"),
        ("controllers", "--concurrent-deployment-syncs=5", "the number of workers is fixed"),
        (
            "scheduler",
            "--leader-elect-resource-name=mine",
            "--leader-elect-resource-name=mine is not supported",
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
    ];
    let scheduler = ["--leader-elect-lease-duration=15s", "--leader-elect-resource-lock=leases"];
    for (component, arguments) in [("controllers", &controllers[..]), ("scheduler", &scheduler[..])] {
        let mut all = vec![component, "--leader-elect=false", "--v=2", "--profiling=false"];
        all.extend(arguments);
        let text = component_refusal(&all).await;
        assert!(text.contains("no.kubeconfig"), "only the kubeconfig is missing: {text}");
    }
}
