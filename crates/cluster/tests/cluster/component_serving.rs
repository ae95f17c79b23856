//! The secure ports of `mizzen controllers` and `mizzen scheduler`, and the flags with which kubeadm starts them.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use http_body_util::Full;
use hyper::Request;
use mizzen_object::proto::wire::{WireReader, WireValue};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{Client, Credentials};
use crate::process::{Home, LoggedCommand, Process, STEP_TIMEOUT};

/// A free port.
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

/// Runs a component with these arguments until it prints that it is running.
async fn run(home: &Home, arguments: &[String], kubeconfig: &Path) -> LoggedCommand {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut component = LoggedCommand::start(&arguments, kubeconfig);
    while !component.line().await.contains("running") {}
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
    let anonymous = connect(port, &certificate, None).await;
    assert_eq!(anonymous.get("/healthz").await.expect(200).text(), "ok");
    let refused = anonymous.get("/metrics").await.expect(403).json();
    assert_eq!(
        refused["message"],
        "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
    );
    anonymous.get("/livez").await.expect(200);
    anonymous.get("/readyz").await.expect(200);

    let admin = connect(port, &certificate, Some(&process)).await;
    let checks = admin.get("/healthz?verbose").await.expect(200).text();
    assert!(
        checks.contains("[+]leaderElection ok\n") && checks.contains("[+]job-controller ok\n"),
        "{checks}"
    );
    let metrics = admin.get("/metrics").await.expect(200).text();
    for shown in [
        "leader_election_master_status{name=\"kube-controller-manager\"} 1\n",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"job-controller\"} 1\n",
        "\nworkqueue_depth{name=\"deployment\"} ",
        "\ninformer_objects{group=\"apps\",",
        "\nprocess_open_fds ",
    ] {
        assert!(metrics.contains(shown), "{shown} is not in\n{metrics}");
    }
    let configuration = admin.get("/configz").await.expect(200).json();
    let generic = &configuration["kubecontrollermanager.config.k8s.io"]["Generic"];
    assert_eq!(
        generic["LeaderElection"]["resourceName"],
        "kube-controller-manager"
    );
    admin.get("/api/v1/pods").await.expect(404);
    anonymous.get("/debug/pprof/").await.expect(403);
    let profile = admin.get("/debug/pprof/profile?seconds=1").await;
    assert_eq!(
        Profile::decode(&profile.expect(200).body).sample_types,
        SAMPLE_TYPES
    );

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
async fn the_scheduler_delegates_authentication_and_authorization() {
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
        "--authorization-always-allow-paths=/livez,/readyz,/metrics/resources".into(),
    ];
    let pod = json!({"metadata": {"name": "large"}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}]}});
    let pods = "/api/v1/namespaces/default/pods";
    server.post(pods, pod.to_string()).await.expect(201);
    let admins = home.kubeconfig();
    let _scheduler = run(&home, &arguments, &admins).await;
    server
        .get("/apis/coordination.k8s.io/v1/namespaces/default/leases/other")
        .await
        .expect(200);
    let anonymous = connect(port, &home.path().join("certs/kube-scheduler.crt"), None).await;
    anonymous.get("/livez").await.expect(200);
    assert_eq!(anonymous.get("/readyz").await.expect(200).text(), "ok");
    anonymous
        .get("/readyz/sched-handler-sync")
        .await
        .expect(403);
    let resources = anonymous.get("/metrics/resources").await.expect(200);
    let request = "kube_pod_resource_request{namespace=\"default\",node=\"\",pod=\"large\",\
                   priority=\"0\",resource=\"cpu\",scheduler=\"default-scheduler\",unit=\"cores\"} 0.25";
    let resources = resources.text();
    assert!(resources.lines().any(|line| line == request), "{resources}");

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
        anonymous.fetch(request)
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
    anonymous.fetch(refused).await.unwrap().expect(401);

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
    let metrics = anonymous.fetch(request).await.unwrap().expect(200).text();
    for series in [
        "leader_election_master_status{name=\"other\"} 1",
        "rest_client_requests_total{code=\"200\",host=\"127.0.0.1:",
        "rest_client_request_duration_seconds_count{host=\"127.0.0.1:",
    ] {
        let is_shown = metrics.lines().any(|line| line.starts_with(series));
        assert!(is_shown, "{series} is not in\n{metrics}");
    }
    process.stop().await;
}

#[tokio::test]
async fn nodes_serve_health_metrics_status_and_flags() {
    let home = Home::on_disk();
    let process = home.start().await;
    let (admins, port) = (home.kubeconfig(), free_port());
    let arguments = [
        "node".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!(
            "--client-ca-file={}",
            home.data_dir().join("ca.crt").display()
        ),
        format!("--cert-dir={}", home.path().join("certs").display()),
        "--nodes=2".into(),
    ];
    let _nodes = run(&home, &arguments, &admins).await;
    let certificate = home.path().join("certs/kubelet.crt");
    let anonymous = connect(port, &certificate, None).await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anonymous.get(path).await.expect(200).text(), "ok", "{path}");
    }
    for path in ["/metrics", "/statusz", "/flagz"] {
        anonymous.get(path).await.expect(403);
    }
    let admin = connect(port, &certificate, Some(&process)).await;
    let metrics = admin.get("/metrics").await.expect(200).text();
    let nodes = "informer_objects{group=\"\",";
    assert!(metrics.contains(nodes), "{metrics}");
    let status = admin.get("/statusz").await.expect(200).text();
    assert!(
        status.starts_with("\nkubelet statusz\nWarning: ")
            && status
                .contains("Paths: /configz /flagz /healthz /livez /metrics /readyz /statusz\n"),
        "{status}"
    );
    let request = Request::get("/flagz")
        .header(
            "accept",
            "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
        )
        .body(Full::default())
        .unwrap();
    let flags = admin.fetch(request).await.unwrap().expect(200).json();
    assert_eq!(
        (
            &flags["kind"],
            &flags["apiVersion"],
            &flags["metadata"]["name"]
        ),
        (
            &json!("Flagz"),
            &json!("config.k8s.io/v1beta1"),
            &json!("kubelet")
        )
    );
    assert_eq!(flags["flags"]["nodes"], "2");
    assert_eq!(flags["flags"]["name"], "node", "defaults are shown");
    process.stop().await;
}

#[tokio::test]
async fn the_error_names_a_port_in_use_and_the_flag() {
    let home = Home::in_memory();
    let process = home.start().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for part in ["controllers", "scheduler", "node"] {
        let output = Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args([part, "--bind-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg("--kubeconfig")
            .arg(home.kubeconfig())
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = format!(
            "mizzen {part}: port {port} is in use by another process; stop it, or choose another with --secure-port (0 \
             serves nothing)"
        );
        assert!(
            !output.status.success() && said.contains(&expected),
            "{said}"
        );
    }
    process.stop().await;
}

#[tokio::test]
async fn secure_ports_default_to_upstreams() {
    for (part, port) in [
        ("controllers", 10257),
        ("scheduler", 10259),
        ("node", 10250),
    ] {
        // The process names the port, whether it is free or not.
        let home = Home::in_memory();
        let process = home.start().await;
        let kubeconfig = home.kubeconfig().display().to_string();
        let arguments = [
            part,
            "--bind-address=127.0.0.1",
            "--kubeconfig",
            &kubeconfig,
        ];
        let mut child = Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args(arguments)
            .stderr(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, said.next_line())
            .await
            .expect("it says where");
        let line = line.unwrap().expect("it goes on");
        assert!(line.contains(&port.to_string()), "{part}: {line}");
        process.stop().await;
    }
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
        .anonymous()
        .await
        .call("PUT", "/debug/flags/v", "9")
        .await
        .expect(403);
    process.stop().await;
}

/// A CPU profile has Go's sample types.
const SAMPLE_TYPES: [&str; 2] = ["samples/count", "cpu/nanoseconds"];

/// A profile in pprof's format: github.com/google/pprof/proto/profile.proto.
#[derive(Debug, Default)]
struct Profile {
    sample_types: Vec<String>,
    /// The functions of each stack, innermost first, and its values.
    samples: Vec<(Vec<String>, Vec<u64>)>,
    period: u64,
    duration_nanos: u64,
}

type Fields<'a> = Vec<(u32, WireValue<'a>)>;

fn fields(message: &[u8]) -> Fields<'_> {
    let mut reader = WireReader::new(message);
    std::iter::from_fn(|| reader.field().unwrap()).collect()
}

fn number(fields: &Fields, field: u32) -> u64 {
    numbers(fields, field).first().copied().unwrap_or_default()
}

fn numbers(fields: &Fields, field: u32) -> Vec<u64> {
    let wanted = fields.iter().filter(|(known, _)| *known == field);
    wanted
        .map(|(_, content)| content.varint("").unwrap())
        .collect()
}

fn messages<'a>(all: &Fields<'a>, field: u32) -> Vec<Fields<'a>> {
    let wanted = all.iter().filter(|(known, _)| *known == field);
    wanted
        .map(|(_, content)| fields(content.bytes("").unwrap()))
        .collect()
}

impl Profile {
    fn decode(compressed: &[u8]) -> Profile {
        let mut message = Vec::new();
        flate2::read::GzDecoder::new(compressed)
            .read_to_end(&mut message)
            .unwrap();
        let profile = fields(&message);
        let strings: Vec<String> = profile
            .iter()
            .filter(|(field, _)| *field == 6)
            .map(|(_, text)| String::from_utf8(text.bytes("").unwrap().to_vec()).unwrap())
            .collect();
        assert_eq!(strings[0], "");
        let string = |at: u64| strings[at as usize].clone();
        let functions: HashMap<u64, String> = messages(&profile, 5)
            .iter()
            .map(|function| (number(function, 1), string(number(function, 2))))
            .collect();
        let locations: HashMap<u64, Vec<String>> = messages(&profile, 4)
            .iter()
            .map(|location| {
                let lines = messages(location, 4);
                let names = lines.iter().map(|line| functions[&number(line, 1)].clone());
                (number(location, 1), names.collect())
            })
            .collect();
        let samples = messages(&profile, 2);
        Profile {
            sample_types: messages(&profile, 1)
                .iter()
                .map(|ty| format!("{}/{}", string(number(ty, 1)), string(number(ty, 2))))
                .collect(),
            samples: samples
                .iter()
                .map(|sample| {
                    let stack = numbers(sample, 1);
                    (
                        stack.iter().flat_map(|id| locations[id].clone()).collect(),
                        numbers(sample, 2),
                    )
                })
                .collect(),
            period: number(&profile, 12),
            duration_nanos: number(&profile, 10),
        }
    }
}

#[tokio::test]
async fn a_cpu_profile_shows_what_the_server_does() {
    let process = Home::in_memory().with("--profiling").start().await;
    let (profiler, admin) = (process.admin().await, process.admin().await);
    let profile = profiler.get("/debug/pprof/profile?seconds=2");
    let busy = async {
        loop {
            admin.get("/openapi/v2").await.expect(200);
            admin
                .get("/apis/rbac.authorization.k8s.io/v1/clusterroles")
                .await
                .expect(200);
        }
    };
    let answer = tokio::select! {
        answer = profile => answer.expect(200),
        () = busy => unreachable!(),
    };
    let profile = Profile::decode(&answer.body);
    assert_eq!(profile.sample_types, SAMPLE_TYPES);
    assert_eq!(profile.period, 10_000_000);
    assert!(
        profile.duration_nanos >= 2_000_000_000,
        "{} ns",
        profile.duration_nanos
    );
    let is_ours = |name: &String| name.contains("mizzen_apiserver::");
    let is_seen = |(stack, values): &(Vec<String>, Vec<u64>)| {
        assert_eq!(values[1], values[0] * profile.period);
        stack.iter().any(is_ours)
    };
    let n_seen: u64 = profile
        .samples
        .iter()
        .filter(|sample| is_seen(sample))
        .map(|(_, values)| values[0])
        .sum();
    assert!(n_seen >= 5, "{:#?}", profile.samples);
    process.stop().await;
}

#[tokio::test]
async fn profiles_are_served_as_in_go() {
    let process = Home::in_memory().start().await;
    let (one, other) = (process.admin().await, process.admin().await);
    let (first, second) = tokio::join!(
        one.get("/debug/pprof/profile?seconds=2"),
        other.get("/debug/pprof/profile?seconds=2")
    );
    let (served, refused) = match first.status {
        200 => (first, second),
        _ => (second, first),
    };
    Profile::decode(&served.expect(200).body);
    assert_eq!(
        refused.expect(500).text(),
        "Could not enable CPU profiling: cpu profiling already in use\n"
    );
    let index = one.get("/debug/pprof/").await.expect(200).text();
    assert!(
        index.contains("<a href='profile?debug=1'>profile</a>"),
        "{index}"
    );
    for name in [
        "heap",
        "goroutine?debug=2",
        "trace?seconds=1",
        "cmdline",
        "profile/",
    ] {
        let path = format!("/debug/pprof/{name}");
        let request = Request::get(one.uri(&path)).body(Full::default()).unwrap();
        let head = one.send(request).await.unwrap();
        assert_eq!(head.status(), 404, "{name}");
        assert_eq!(head.headers()["x-go-pprof"], "1");
        assert_eq!(head.headers()["x-content-type-options"], "nosniff");
        assert_eq!(one.get(&path).await.text(), "Unknown profile\n", "{name}");
    }
    let request = Request::get(one.uri("/debug/pprof")).body(Full::default());
    let moved = one.send(request.unwrap()).await.unwrap();
    assert_eq!(moved.status(), 302);
    assert_eq!(moved.headers()["location"], "/debug/pprof/");
    let symbols = one.get("/debug/pprof/symbol?0x1+x").await.expect(200);
    assert_eq!(symbols.text(), "num_symbols: 1\n");
    let anonymous = process.anonymous().await;
    anonymous
        .get("/debug/pprof/profile?seconds=1")
        .await
        .expect(403);
    process.stop().await;
}
