//! `kube-apiserver` and `etcd` as the harnesses of test suites start them.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::client::{Client, Credentials};
use crate::process::STEP_TIMEOUT;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How often a harness polls.
const POLL: Duration = Duration::from_millis(20);

/// A directory with the programs, and one for each process.
struct Assets {
    home: TempDir,
    /// The authority of the serving certificate.
    serving: String,
    /// The authority of users.
    users: CertifiedIssuer<'static, KeyPair>,
    admin: Credentials,
}

impl Assets {
    /// Installs the programs, and writes the files that controller-runtime writes before it starts them.
    async fn install() -> Assets {
        let home = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_mizzen"))
            .args(["envtest", "install"])
            .arg(home.path().join("bin"))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let bin = home.path().join("bin").canonicalize().unwrap();
        let expected = format!("export KUBEBUILDER_ASSETS='{}'\n", bin.display());
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);

        let certs = home.path().join("certs");
        std::fs::create_dir(&certs).unwrap();
        let write = |name: &str, text: String| std::fs::write(certs.join(name), text).unwrap();
        let serving = authority("serving");
        let mut leaf = CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        write(
            "apiserver.crt",
            leaf.signed_by(&key, &serving).unwrap().pem(),
        );
        write("apiserver.key", key.serialize_pem());
        let signer = authority("service accounts");
        write("sa-signer.crt", signer.pem());
        write("sa-signer.key", signer.key().serialize_pem());
        let users = authority("users");
        write("client-cert-auth-ca.crt", users.pem());

        let (serving, placeholder) = (serving.pem(), Credentials::new("", "", ""));
        let mut assets = Assets {
            home,
            serving,
            users,
            admin: placeholder,
        };
        assets.admin = assets.user("admin", "system:masters");
        assets
    }

    /// A user with a certificate of the authority of users.
    fn user(&self, name: &str, group: &str) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let certificate = user_params(name, group)
            .signed_by(&key, &self.users)
            .unwrap();
        Credentials::new(&self.serving, &certificate.pem(), &key.serialize_pem())
    }

    /// The output of a program that ends by itself.
    async fn output(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        output(&self.path("bin").join(program), arguments).await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts a program in a process group of its own, as controller-runtime does.
    fn start(&self, program: &str, arguments: &[String], loops: &str) -> Started {
        let child = Command::new(self.path("bin").join(program))
            .args(arguments)
            .env("MIZZEN_ENVTEST_LOOPS", loops)
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Started(child)
    }

    /// The flags of controller-runtime 0.24 for etcd.
    fn etcd_flags(&self, port: u16) -> Vec<String> {
        let data = self.path("etcd");
        vec![
            format!("--advertise-client-urls=http://127.0.0.1:{port}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls=http://127.0.0.1:{port}"),
            "--listen-peer-urls=http://127.0.0.1:1".into(),
            "--unsafe-no-fsync=true".into(),
        ]
    }

    /// The flags of controller-runtime 0.24 for kube-apiserver, and some that suites add.
    fn apiserver_flags(&self, port: u16, etcd: u16) -> Vec<String> {
        let certs = self.path("certs");
        let certs = certs.display();
        vec![
            "--allow-privileged=true".into(),
            "--authorization-mode=RBAC".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={certs}"),
            format!("--client-ca-file={certs}/client-cert-auth-ca.crt"),
            "--disable-admission-plugins=ServiceAccount".into(),
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={certs}/sa-signer.crt"),
            format!("--service-account-signing-key-file={certs}/sa-signer.key"),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--advertise-address=127.0.0.1".into(),
            "--feature-gates=WatchList=true".into(),
            "--runtime-config=api/ga=true".into(),
            "--v=2".into(),
            "--v=3".into(),
        ]
    }

    /// An etcd and an API server, both ready.
    async fn start_both(&self, loops: &str) -> (Started, Started, String) {
        let (etcd_port, port) = (free_port().await, free_port().await);
        let etcd = self.start("etcd", &self.etcd_flags(etcd_port), "");
        let health = get_plain(etcd_port, "/health").await;
        assert!(health.contains(r#""health":"true""#), "{health}");
        let flags = self.apiserver_flags(port, etcd_port);
        let server = self.start("kube-apiserver", &flags, loops);
        let address = format!("127.0.0.1:{port}");
        self.wait_until_healthy(&address).await;
        (etcd, server, address)
    }

    /// Polls /healthz without credentials, as controller-runtime does.
    async fn wait_until_healthy(&self, address: &str) {
        let healthy = async {
            while TcpStream::connect(address).await.is_err() {
                sleep(POLL).await;
            }
            let anonymous = self.admin.anonymous();
            let client = Client::connect(address, &anonymous, &["http/1.1"]).await;
            client.get("/healthz").await.expect(200);
        };
        timeout(STEP_TIMEOUT, healthy)
            .await
            .expect("healthy in time");
    }
}

/// A program.
struct Started(Child);

impl Started {
    /// Sends SIGTERM to its process group, and waits for the end.
    async fn stop(mut self) -> ExitStatus {
        let group = Pid::from_raw(i32::try_from(self.0.id().unwrap()).unwrap());
        killpg(group, Signal::SIGTERM).unwrap();
        // Connections of clients are open, and do not delay it.
        timeout(Duration::from_secs(10), self.0.wait())
            .await
            .expect("ends at once")
            .unwrap()
    }
}

/// The certificate of a user.
fn user_params(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// A user with a certificate that is its own authority.
fn self_signed(name: &str, group: &str, serving: &str) -> Credentials {
    let key = KeyPair::generate().unwrap();
    let certificate = user_params(name, group).self_signed(&key).unwrap();
    Credentials::new(serving, &certificate.pem(), &key.serialize_pem())
}

/// A certificate authority with a P-256 key.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A port that is free now, as harnesses suggest them.
async fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

/// The response of a server without TLS, once it listens.
async fn get_plain(port: u16, path: &str) -> String {
    let response = async {
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => break stream,
                Err(_) => sleep(POLL).await,
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    };
    timeout(STEP_TIMEOUT, response).await.expect("a response")
}

/// The output of a program that ends by itself.
async fn output(program: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = timeout(STEP_TIMEOUT, output).await.expect("ends").unwrap();
    let mut text = String::from_utf8(output.stdout).unwrap();
    text += &String::from_utf8(output.stderr).unwrap();
    (output.status.success(), text)
}

#[tokio::test]
async fn programs_start_with_the_flags_of_controller_runtime() {
    let assets = Assets::install().await;
    let ports = [free_port().await, free_port().await, free_port().await];
    let etcd = assets.start("etcd", &assets.etcd_flags(ports[0]), "");
    let health = get_plain(ports[0], "/health").await;
    assert!(health.contains(r#""health":"true""#), "{health}");
    // The data survives the API server, and a watch does not delay its stop.
    for (is_first, port) in [(true, ports[1]), (false, ports[2])] {
        let flags = assets.apiserver_flags(port, ports[0]);
        let server = assets.start("kube-apiserver", &flags, "");
        let address = format!("127.0.0.1:{port}");
        assets.wait_until_healthy(&address).await;
        let admin = Client::connect(&address, &assets.admin, &["h2"]).await;
        if is_first {
            let kept = r#"{"metadata":{"name":"kept"}}"#;
            admin.post(CONFIG_MAPS, kept).await.expect(201);
        }
        admin.get(&format!("{CONFIG_MAPS}/kept")).await.expect(200);
        let jane = assets.user("jane", "developers");
        let jane = Client::connect(&address, &jane, &["h2"]).await;
        let denied = jane.get(CONFIG_MAPS).await.expect(403).text();
        assert!(denied.contains(r#"User \"jane\" cannot list"#), "{denied}");
        let _events = admin.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
        assert_eq!(server.stop().await.code(), Some(0));
    }
    assert_eq!(etcd.stop().await.code(), Some(0));
}

/// Java's kube-api-test starts the API server before etcd is up, gives some flags twice and others with one dash, and
/// trusts the certificate of its only user.
#[tokio::test]
async fn programs_start_with_the_flags_of_kube_api_test() {
    let assets = Assets::install().await;
    let (etcd_port, port) = (free_port().await, free_port().await);
    let admin = self_signed("kubernetes-admin", "system:masters", &assets.serving);
    let client = assets.path("client.crt");
    std::fs::write(&client, admin.certificate()).unwrap();
    let path = |name: &str| assets.path(name).display().to_string();
    let text = |words: &[&str]| {
        words
            .iter()
            .map(|word| word.to_string())
            .collect::<Vec<_>>()
    };
    let server = assets.start(
        "kube-apiserver",
        &text(&[
            "--cert-dir",
            &path("certs"),
            "--secure-port",
            &port.to_string(),
            "--etcd-servers",
            &format!("http://0.0.0.0:{etcd_port}"),
            "--authorization-mode",
            "RBAC",
            "--service-account-issuer",
            "https://localhost",
            "--service-account-signing-key-file",
            &path("certs/apiserver.key"),
            "--service-account-signing-key-file",
            &path("certs/apiserver.key"),
            "--service-account-key-file",
            &path("certs/apiserver.key"),
            "--service-account-issuer",
            &path("certs/apiserver.crt"),
            "--disable-admission-plugins",
            "ServiceAccount",
            "--client-ca-file",
            &client.display().to_string(),
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--allow-privileged",
        ]),
        "",
    );
    let _etcd = assets.start(
        "etcd",
        &text(&[
            "-data-dir",
            &path("data"),
            "-wal-dir",
            &path("wal"),
            "--listen-client-urls",
            &format!("http://0.0.0.0:{etcd_port}"),
            "--advertise-client-urls",
            &format!("http://0.0.0.0:{etcd_port}"),
            "--initial-cluster",
            "default=http://localhost:1",
            "--initial-advertise-peer-urls",
            "http://localhost:1",
            "--listen-peer-urls",
            "http://localhost:1",
        ]),
        "",
    );
    let address = format!("127.0.0.1:{port}");
    assets.wait_until_healthy(&address).await;
    let client = Client::connect(&address, &admin, &["http/1.1"]).await;
    client.get("/readyz").await.expect(200);
    client.get("/api/v1/namespaces/default").await.expect(200);
    assert_eq!(server.stop().await.code(), Some(0));
}

/// controller-runtime 0.9 to 0.14 with the deprecated `APIServerFlags`, whose templates expand to an empty argument, and with
/// etcd's of 0.6 to 0.8, which waits for a line of etcd 3.4.
#[tokio::test]
async fn programs_start_with_the_flags_of_old_controller_runtimes() {
    let assets = Assets::install().await;
    let (etcd_port, port) = (free_port().await, free_port().await);
    let mut etcd = Command::new(assets.path("bin/etcd"))
        .arg("--listen-peer-urls=http://localhost:0")
        .arg(format!(
            "--advertise-client-urls=http://127.0.0.1:{etcd_port}"
        ))
        .arg(format!("--listen-client-urls=http://127.0.0.1:{etcd_port}"))
        .arg(format!("--data-dir={}", assets.path("etcd").display()))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(etcd.stderr.take().unwrap()).lines();
    let line = timeout(STEP_TIMEOUT, lines.next_line()).await.unwrap();
    let line = line.unwrap().unwrap();
    assert!(
        line.contains("serving insecure client requests on 127.0.0.1:"),
        "{line}"
    );
    let certs = assets.path("certs").display().to_string();
    let flags = [
        "--advertise-address=127.0.0.1".into(),
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--cert-dir={certs}"),
        "--insecure-port=0".into(),
        String::new(),
        format!("--secure-port={port}"),
        "--disable-admission-plugins=ServiceAccount".into(),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--allow-privileged=true".into(),
        "--authorization-mode=RBAC".into(),
        format!("--client-ca-file={certs}/client-cert-auth-ca.crt"),
        "--service-account-issuer=https://127.0.0.1/".into(),
        format!("--service-account-key-file={certs}/sa-signer.crt"),
        format!("--service-account-signing-key-file={certs}/sa-signer.key"),
    ];
    let server = assets.start("kube-apiserver", &flags, "");
    let address = format!("127.0.0.1:{port}");
    assets.wait_until_healthy(&address).await;
    let admin = Client::connect(&address, &assets.admin, &["h2"]).await;
    admin.get("/api/v1/namespaces/default").await.expect(200);
    assert_eq!(server.stop().await.code(), Some(0));
}

/// Scripts of other languages give no certificate: they wait for that of `--cert-dir`, and trust it as a whole.
#[tokio::test]
async fn a_generated_certificate_appears_in_the_cert_dir_and_tokens_work() {
    let assets = Assets::install().await;
    let (etcd_port, port) = (free_port().await, free_port().await);
    let tokens = assets.path("tokens.csv");
    let lines = "secret-a,admin,1,system:masters\nsecret-b,jane,2,\"developers,testers\"\n";
    std::fs::write(&tokens, lines).unwrap();
    let (generated, certs) = (assets.path("generated"), assets.path("certs"));
    let _etcd = assets.start("etcd", &assets.etcd_flags(etcd_port), "");
    let flags = [
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--cert-dir={}", generated.display()),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        format!("--token-auth-file={}", tokens.display()),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!(
            "--service-account-key-file={}/sa-signer.key",
            certs.display()
        ),
        format!(
            "--service-account-signing-key-file={}/sa-signer.key",
            certs.display()
        ),
    ];
    let _server = assets.start("kube-apiserver", &flags, "");
    let address = format!("127.0.0.1:{port}");
    let listening = async {
        while TcpStream::connect(&address).await.is_err() {
            sleep(POLL).await;
        }
    };
    timeout(STEP_TIMEOUT, listening).await.unwrap();
    // As upstream, the files are there before the server listens.
    let credentials = Credentials {
        authority: std::fs::read(generated.join("apiserver.crt")).unwrap(),
        user: None,
    };
    assert!(generated.join("apiserver.key").exists());
    let client = Client::connect(&address, &credentials, &["h2"]).await;
    for (token, status) in [("secret-a", 200), ("secret-b", 403), ("secret-c", 401)] {
        let request = Request::get(client.uri(CONFIG_MAPS))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::default())
            .unwrap();
        client.fetch(request).await.unwrap().expect(status);
    }
}

#[tokio::test]
async fn an_etcd_without_file_descriptors_waits_for_one() {
    let assets = Assets::install().await;
    let port = free_port().await;
    let limited = format!(
        "ulimit -n 16 && exec '{}' --data-dir='{}' --listen-client-urls=http://127.0.0.1:{port}",
        assets.path("bin/etcd").display(),
        assets.path("etcd").display(),
    );
    let mut etcd = Command::new("sh")
        .args(["-c", &limited])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(etcd.stderr.take().unwrap()).lines();
    let mut next_line = async || {
        let line = timeout(STEP_TIMEOUT, lines.next_line()).await.unwrap();
        line.unwrap()
    };
    assert!(next_line().await.unwrap().starts_with("ready"));
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let line = next_line().await.unwrap();
    assert!(line.contains("failed to accept connections"), "{line}");
    drop(clients);
    let health = get_plain(port, "/health").await;
    assert!(health.contains(r#""health":"true""#), "{health}");
    // It has failed many times meanwhile, and says so once.
    let pid = Pid::from_raw(i32::try_from(etcd.id().unwrap()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    while let Some(line) = next_line().await {
        assert!(!line.contains("failed to accept"), "{line}");
    }
}

/// controller-runtime looks for flags in the help, at the beginning of a line.
#[tokio::test]
async fn help_has_the_flags_that_harnesses_look_for() {
    let assets = Assets::install().await;
    let has_flag = |help: &str, flag: &str| {
        let mut lines = help.lines().map(str::trim_start);
        lines.any(|line| line.split([' ', '=', '[']).next() == Some(flag))
    };
    let (is_ok, help) = assets.output("kube-apiserver", &["--help"]).await;
    assert!(is_ok && !has_flag(&help, "--insecure-port"), "{help}");
    assert!(has_flag(&help, "--etcd-servers") && has_flag(&help, "--cert-dir"));
    let (is_ok, help) = assets.output("etcd", &["--help"]).await;
    assert!(is_ok && has_flag(&help, "--unsafe-no-fsync"), "{help}");
    let (_, version) = assets.output("kube-apiserver", &["--version"]).await;
    assert_eq!(version, "Kubernetes v1.36.4\n");
}

#[tokio::test]
async fn flags_and_servers_that_are_not_supported_are_rejected_by_name() {
    let assets = Assets::install().await;
    // Something that is no etcd listens where one should be.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = format!("--etcd-servers=http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let not_found =
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(not_found).await.unwrap();
        }
    });
    let cases = [
        ("kube-apiserver", vec![], "--etcd-servers must be specified"),
        (
            "kube-apiserver",
            vec![&*other, "--storage-initialization-timeout=1s"],
            "etcd could not be read within 1 s",
        ),
        (
            "kube-apiserver",
            vec!["--insecure-port=8080"],
            "--insecure-port=8080 is not supported",
        ),
        (
            "kube-apiserver",
            vec!["--etcd-servers=http://127.0.0.1:1", "start"],
            "kube-apiserver does not take any arguments",
        ),
        (
            "etcd",
            vec!["--cert-file=x"],
            "--cert-file is not supported: only http:// is served",
        ),
        (
            "etcd",
            vec!["--listen-client-urls=https://127.0.0.1:1"],
            "only http:// is supported",
        ),
    ];
    for (program, arguments, expected) in cases {
        let (is_ok, text) = assets.output(program, &arguments).await;
        assert!(!is_ok && text.contains(expected), "{program}: {text}");
    }
}

#[tokio::test]
async fn loops_of_the_environment_run_beside_the_api_server() {
    let assets = Assets::install().await;
    let (_etcd, _server, address) = assets.start_both("namespace,gc").await;
    let admin = Client::connect(&address, &assets.admin, &["h2"]).await;
    let namespaces = "/api/v1/namespaces";
    let doomed = r#"{"metadata":{"name":"doomed"}}"#;
    admin.post(namespaces, doomed).await.expect(201);
    let mut events = admin
        .watch(&format!(
            "{namespaces}?watch=1&fieldSelector=metadata.name%3Ddoomed"
        ))
        .await;
    admin
        .call("DELETE", &format!("{namespaces}/doomed"), "")
        .await
        .expect(200);
    while events.next_name().await != "DELETED doomed" {}
}

#[tokio::test]
async fn all_loops_make_pods_run_in_parallel_suites() {
    let assets = Assets::install().await;
    let other = Assets::install().await;
    let pod = r#"{"metadata":{"name":"web"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#;
    let started = tokio::join!(assets.start_both("all"), other.start_both("all"));
    for (assets, address) in [(&assets, &started.0.2), (&other, &started.1.2)] {
        let admin = Client::connect(address, &assets.admin, &["h2"]).await;
        let pods = "/api/v1/namespaces/default/pods";
        admin.post(pods, pod).await.expect(201);
        let mut events = admin
            .watch(&format!("{pods}?watch=1&resourceVersion=0"))
            .await;
        while events.next().await.unwrap()["object"]["status"]["phase"] != "Running" {}
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("etcd"), "another program").unwrap();
    let directory = home.path().to_str().unwrap();
    let mizzen = Path::new(env!("CARGO_BIN_EXE_mizzen"));
    let (is_ok, text) = output(mizzen, &["envtest", "install", directory]).await;
    assert!(
        !is_ok && text.contains("etcd exists and is not a link to mizzen"),
        "{text}"
    );
}

#[tokio::test]
async fn a_version_is_installed_where_setup_envtest_looks_for_it() {
    let home = tempfile::tempdir().unwrap();
    let bin_dir = home.path().canonicalize().unwrap();
    let bin_dir = bin_dir.to_str().unwrap();
    let mizzen = Path::new(env!("CARGO_BIN_EXE_mizzen"));
    // A Makefile names the version of Kubernetes, and often a directory of its own.
    for (version, directory) in [("=v1.31.0", "1.31.0"), ("", "1.36.4")] {
        let flag = format!("--setup-envtest{version}");
        let (is_ok, text) =
            output(mizzen, &["envtest", "install", &flag, "--bin-dir", bin_dir]).await;
        assert!(is_ok, "{text}");
        let expected = format!("export KUBEBUILDER_ASSETS='{bin_dir}/k8s/{directory}-");
        assert!(text.contains(&expected), "{text}");
    }
    for version in ["../1", "1.31", "1.31.x"] {
        let flag = format!("--setup-envtest={version}");
        let (is_ok, text) = output(mizzen, &["envtest", "install", &flag]).await;
        assert!(!is_ok && text.contains("not a version"), "{text}");
    }
}
