//! The secure ports of `mizzen controllers` and `mizzen scheduler`, and the flags with which kubeadm starts them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use http_body_util::Full;
use hyper::Request;
use serde_json::json;
use tokio::process::Command;

use crate::client::{Client, Credentials};
use crate::process::{Home, Process, Speaking};

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// A kubeconfig of another user.
async fn kubeconfig(home: &Home, user: &str) -> PathBuf {
    let output = Command::new(env!("CARGO_BIN_EXE_mizzen"))
        .args(["kubeconfig", "--user", user, "--data-dir"])
        .arg(home.data_dir())
        .output()
        .await
        .unwrap();
    let file = home
        .path()
        .join(format!("{}.kubeconfig", user.replace(':', "-")));
    std::fs::write(&file, output.stdout).unwrap();
    file
}

/// Runs a component with these arguments until it says that it works.
async fn run(home: &Home, arguments: &[String], kubeconfig: &Path) -> Speaking {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut component = Speaking::start(&arguments, kubeconfig);
    while !component.line().await.contains("at work") {}
    let _ = home;
    component
}

/// A client of a component, with the certificate of a user of the cluster or none.
async fn connect(port: u16, certificates: &Path, user: Option<&Process>) -> Client {
    let credentials = Credentials {
        authority: std::fs::read(certificates).unwrap(),
        user: user.and_then(|process| process.credentials.user.clone()),
    };
    Client::connect(&format!("127.0.0.1:{port}"), &credentials, &["http/1.1"]).await
}

/// What kubeadm passes, with the files of a data directory. Kubernetes: cmd/kubeadm/app/phases/controlplane/manifests.go.
fn kubeadm_controller_manager(home: &Home, kubeconfig: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| home.data_dir().join(name).display().to_string();
    let kubeconfig = kubeconfig.display();
    [
        "controllers".into(),
        "--bind-address=127.0.0.1".into(),
        "--leader-elect=true".into(),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        format!("--client-ca-file={}", file("ca.crt")),
        format!(
            "--requestheader-client-ca-file={}",
            file("front-proxy-ca.crt")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("sa.key")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        "--use-service-account-credentials=true".into(),
        "--controllers=*,bootstrapsigner,tokencleaner".into(),
        "--allocate-node-cidrs=true".into(),
        "--cluster-cidr=10.244.0.0/16".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--cluster-name=kubernetes".into(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", home.path().join("certs").display()),
    ]
    .into()
}

#[tokio::test]
async fn controllers_run_with_the_flags_of_kubeadm() {
    let home = Home::on_disk();
    let process = home.start().await;
    let (user, port) = (
        kubeconfig(&home, "system:kube-controller-manager").await,
        free_port(),
    );
    let _controllers = run(
        &home,
        &kubeadm_controller_manager(&home, &user, port),
        &user,
    )
    .await;
    let certificate = home.path().join("certs/kube-controller-manager.crt");
    let stranger = connect(port, &certificate, None).await;
    assert_eq!(stranger.get("/healthz").await.expect(200).text(), "ok");
    let refused = stranger.get("/metrics").await.expect(403).json();
    assert_eq!(
        refused["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
    );
    stranger.get("/livez").await.expect(404);

    let admin = connect(port, &certificate, Some(&process)).await;
    let checks = admin.get("/healthz?verbose").await.expect(200).text();
    assert!(
        checks.contains("[+]leaderElection ok\n") && checks.contains("[+]job-controller ok\n"),
        "{checks}"
    );
    let metrics = admin.get("/metrics").await.expect(200).text();
    let leads = "leader_election_master_status{name=\"kube-controller-manager\"} 1\n";
    assert!(
        metrics.contains(leads) && metrics.contains("process_open_fds "),
        "{metrics}"
    );
    let configuration = admin.get("/configz").await.expect(200).json();
    let generic = &configuration["kubecontrollermanager.config.k8s.io"]["Generic"];
    assert_eq!(
        generic["LeaderElection"]["resourceName"],
        "kube-controller-manager"
    );
    admin.get("/api/v1/pods").await.expect(404);
    admin.get("/debug/pprof/heap").await.expect(501);

    // The user of the kubeconfig may not create pods; the service account of the controller may.
    let server = process.admin().await;
    let set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mut pods = server
        .watch("/api/v1/namespaces/default/pods?watch=true")
        .await;
    server
        .post(
            "/apis/apps/v1/namespaces/default/replicasets",
            set.to_string(),
        )
        .await
        .expect(201);
    assert!(pods.next_name().await.starts_with("ADDED web-"));
    let account = "/api/v1/namespaces/kube-system/serviceaccounts/replicaset-controller";
    server.get(account).await.expect(200);
    process.stop().await;
}

#[tokio::test]
async fn the_scheduler_authenticates_tokens_and_authorizes_users_by_asking_the_server() {
    let home = Home::on_disk();
    let process = home.start().await;
    let server = process.admin().await;
    let (user, port) = (
        kubeconfig(&home, "system:kube-scheduler").await,
        free_port(),
    );
    let arguments = [
        "scheduler".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--authentication-kubeconfig={}", user.display()),
        format!("--authorization-kubeconfig={}", user.display()),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", home.path().join("certs").display()),
        "--leader-elect-resource-name=other".into(),
        "--leader-elect-resource-namespace=default".into(),
    ];
    let admins = home.kubeconfig();
    let _scheduler = run(&home, &arguments, &admins).await;
    server
        .get("/apis/coordination.k8s.io/v1/namespaces/default/leases/other")
        .await
        .expect(200);
    let stranger = connect(port, &home.path().join("certs/kube-scheduler.crt"), None).await;
    stranger.get("/livez").await.expect(200);
    assert_eq!(stranger.get("/readyz").await.expect(200).text(), "ok");
    stranger.get("/readyz/sched-handler-sync").await.expect(403);

    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server
        .post(
            accounts,
            json!({"metadata": {"name": "scraper"}}).to_string(),
        )
        .await
        .expect(201);
    let token = server
        .post(&format!("{accounts}/scraper/token"), "{}")
        .await
        .expect(201)
        .json();
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let scrape = || {
        let request = Request::get("/metrics")
            .header("authorization", &bearer)
            .body(Full::default())
            .unwrap();
        stranger.fetch(request)
    };
    let refused = scrape().await.unwrap().expect(403).json();
    let user = "system:serviceaccount:default:scraper";
    assert_eq!(
        refused["message"],
        format!("forbidden: User \"{user}\" cannot get path \"/metrics\"")
    );
    let refused = Request::get("/metrics")
        .header("authorization", "Bearer x")
        .body(Full::default())
        .unwrap();
    stranger.fetch(refused).await.unwrap().expect(401);

    // Decisions are cached by the user, so another one is allowed.
    server
        .post(
            accounts,
            json!({"metadata": {"name": "reader"}}).to_string(),
        )
        .await
        .expect(201);
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    server.post(bindings, binding.to_string()).await.expect(201);
    let token = server
        .post(&format!("{accounts}/reader/token"), "{}")
        .await
        .expect(201)
        .json();
    let bearer = format!("Bearer {}", token["status"]["token"].as_str().unwrap());
    let request = Request::get("/metrics")
        .header("authorization", &bearer)
        .body(Full::default())
        .unwrap();
    let metrics = stranger.fetch(request).await.unwrap().expect(200).text();
    assert!(
        metrics.contains("leader_election_master_status{name=\"other\"} 1\n"),
        "{metrics}"
    );
    process.stop().await;
}

#[tokio::test]
async fn the_verbosity_of_the_log_is_set_while_the_server_runs() {
    let home = Home::in_memory().logging();
    let process = home.start().await;
    let admin = process.admin().await;
    let answer = admin
        .call("PUT", "/debug/flags/v", "2")
        .await
        .expect(200)
        .text();
    assert_eq!(answer, "successfully set klog.logging.verbosity to 2\n");
    let answer = admin
        .call("PUT", "/debug/flags/v", "x")
        .await
        .expect(400)
        .text();
    assert_eq!(answer, "strconv.ParseUint: parsing \"x\": invalid syntax\n");
    assert_eq!(
        admin.get("/debug/flags/v").await.expect(406).text(),
        "unsupported http method\n"
    );
    assert!(
        admin
            .get("/debug/flags")
            .await
            .expect(200)
            .text()
            .contains("<tr>v<br>")
    );
    process
        .stranger()
        .await
        .call("PUT", "/debug/flags/v", "9")
        .await
        .expect(403);
    process.stop().await;
}
