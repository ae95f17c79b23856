//! The start of a server, and restarts.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tokio::time::Instant;

use crate::client::Client;
use crate::process::Home;

/// Generous, for a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(20);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_server_is_ready_soon_and_prints_its_address() {
    let home = Home::in_memory();
    let started = Instant::now();
    let process = home.start().await;
    assert!(started.elapsed() < SOON, "took {:?}", started.elapsed());
    assert!(
        process
            .line
            .contains(home.kubeconfig().file_name().unwrap().to_str().unwrap()),
        "{}",
        process.line
    );
    process.admin().await.get("/readyz").await.expect(200);
    let namespaces = process
        .admin()
        .await
        .get("/api/v1/namespaces")
        .await
        .expect(200)
        .json();
    let names: Vec<_> = namespaces["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(
        names,
        ["default", "kube-node-lease", "kube-public", "kube-system"]
    );
}

#[tokio::test]
async fn only_its_owner_may_read_what_a_server_writes() {
    let home = Home::on_disk();
    let process = home.start().await;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home.kubeconfig()), 0o600);
    assert_eq!(mode(&home.data_dir()), 0o700);
    process.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_data_and_credentials() {
    let home = Home::on_disk();
    let first = home.start().await;
    let body = r#"{"metadata":{"name":"kept"},"data":{"a":"b"}}"#;
    let made = first
        .admin()
        .await
        .post(CONFIG_MAPS, body)
        .await
        .expect(201)
        .json();
    let credentials = first.credentials.clone();
    first.stop().await;

    let second = home.start().await;
    assert_eq!(second.credentials.authority, credentials.authority);
    let client = Client::connect(&second.address, &credentials, &["h2"]).await;
    let found = client
        .get(&format!("{CONFIG_MAPS}/kept"))
        .await
        .expect(200)
        .json();
    assert_eq!(found, made);
    second.stop().await;
}

#[tokio::test]
async fn servers_in_one_place_do_not_share_memory() {
    let (first, second) = (Home::in_memory(), Home::in_memory());
    let (first, second) = tokio::join!(first.start(), second.start());
    let body = r#"{"metadata":{"name":"mine"}}"#;
    first
        .admin()
        .await
        .post(CONFIG_MAPS, body)
        .await
        .expect(201);
    second
        .admin()
        .await
        .get(&format!("{CONFIG_MAPS}/mine"))
        .await
        .expect(404);
    let anonymous = second.anonymous().await;
    anonymous.get(CONFIG_MAPS).await.expect(403);
}

#[tokio::test]
async fn the_first_address_of_the_service_range_is_the_servers() {
    let process = Home::in_memory().start().await;
    let client = process.admin().await;
    let group = "/apis/networking.k8s.io/v1";
    let range = client
        .get(&format!("{group}/servicecidrs/kubernetes"))
        .await
        .expect(200)
        .json();
    assert_eq!(range["spec"]["cidrs"][0], "10.0.0.0/24");
    assert_eq!(range["status"]["conditions"][0]["status"], "True");
    let address = client
        .get(&format!("{group}/ipaddresses/10.0.0.1"))
        .await
        .expect(200)
        .json();
    assert_eq!(address["spec"]["parentRef"]["name"], "kubernetes");
}

#[tokio::test]
async fn an_etcd_that_does_not_answer_is_named_while_the_server_waits() {
    let limit = ["--storage-initialization-timeout", "2s"];
    let etcd = ["--port", "0", "--etcd-servers", "http://127.0.0.1:1"];
    let failed = Home::on_disk()
        .fail_with(&[&etcd[..], &limit].concat())
        .await;
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&failed.stderr);
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    for part in ["waiting for etcd", "could not be read within 2 s", refused] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

#[tokio::test]
async fn an_unknown_admission_plugin_is_an_error() {
    let failed = Home::in_memory()
        .fail_with(&[
            "--port",
            "0",
            "--enable-admission-plugins",
            "Priority,Nonsense",
        ])
        .await;
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        said.contains("enable-admission-plugins plugin \"Nonsense\" is unknown"),
        "{said}"
    );
}

#[tokio::test]
async fn invalid_admission_configuration_is_rejected() {
    let home = Home::in_memory();
    let file = home.path().join("admission.yaml");
    std::fs::write(&file, "kind: Nonsense\n").unwrap();
    let file = file.to_str().unwrap();
    let failed = home
        .fail_with(&["--port", "0", "--admission-control-config-file", file])
        .await;
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(
        said.contains(
            "failed to read plugin config: Object 'apiVersion' is missing in 'kind: Nonsense"
        ),
        "{said}"
    );
}

#[tokio::test]
async fn invalid_authorization_configuration_is_rejected() {
    let home = Home::in_memory();
    let file = home.path().join("authorization.yaml");
    let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Oracle, name: o}]";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let failed = home
        .fail_with(&["--port", "0", "--authorization-config", file])
        .await;
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&failed.stderr);
    let expected = format!("{file}: authorizers[0].type: Unsupported value: \"Oracle\"");
    assert!(said.contains(&expected), "{said}");
    let failed = home
        .fail_with(&["--port", "0", "--authorization-mode", "ABAC"])
        .await;
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("the mode ABAC is not supported"), "{said}");
}

#[tokio::test]
async fn plugins_that_are_off_can_be_enabled_and_configured() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    const SERVICE: &str =
        r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"externalIPs":["192.0.2.1"]}}"#;
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let limits = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [{type: User, qps: 1, burst: 1}]";
    let configuration = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: EventRateLimit, path: limits.yaml}]";
    for home in [
        Home::in_memory(),
        Home::in_memory().whole().with("--nodes=0"),
    ] {
        let home = home
            .with("--enable-admission-plugins=DenyServiceExternalIPs,EventRateLimit")
            .with("--admission-control-config-file=admission.yaml");
        let output = home.fail_to_start(0).await;
        assert!(String::from_utf8_lossy(&output.stderr).contains("admission.yaml"));
        std::fs::write(home.path().join("admission.yaml"), configuration).unwrap();
        std::fs::write(home.path().join("limits.yaml"), limits).unwrap();
        let process = home.start().await;
        let client = process.admin().await;
        let refused = client.post(SERVICES, SERVICE).await.expect(403).text();
        assert!(
            refused.contains("Use of external IPs is denied by admission control"),
            "{refused}"
        );
        // One per second is accepted; some come faster, however slow the machine is.
        let mut refused = None;
        for number in 0..100 {
            let metadata = format!(r#"{{"name":"e{number}"}}"#);
            let event =
                format!(r#"{{"metadata":{metadata},"involvedObject":{{"namespace":"default"}}}}"#);
            let answer = client.post(EVENTS, event).await;
            assert!(number > 0 || answer.status == 201, "{}", answer.text());
            if answer.status != 201 {
                refused = Some(answer.expect(429).text());
                break;
            }
        }
        let refused = refused.expect("one is refused");
        assert!(
            refused.contains("limit reached on type User for key admin"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn an_admission_plugin_without_its_requirements_fails_the_start() {
    for (arguments, expected) in [
        (
            &["--enable-admission-plugins=EventRateLimit"][..],
            "limits: Invalid value: null: must not be empty",
        ),
        (
            &["--enable-admission-plugins=ImagePolicyWebhook"],
            "\"ImagePolicyWebhook\": no config specified",
        ),
        (
            &["--enable-admission-plugins=JobValidation"],
            "\"JobValidation\" would do nothing",
        ),
        (
            &["--enable-admission-plugins=Nonsense"],
            "enable-admission-plugins plugin \"Nonsense\" is unknown",
        ),
        (
            &[
                "--enable-admission-plugins=Priority",
                "--disable-admission-plugins=Priority",
            ],
            "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
        ),
        (
            &[
                "--enable-admission-plugins=Nonsense,Priority",
                "--disable-admission-plugins=Other",
            ],
            "[enable-admission-plugins plugin \"Nonsense\" is unknown, disable-admission-plugins plugin \"Other\" is unknown]",
        ),
    ] {
        let output = Home::in_memory()
            .fail_with(&[&["--port", "0"], arguments].concat())
            .await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
    }
}
