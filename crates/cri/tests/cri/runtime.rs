//! The calls against a real containerd.

use std::io::{BufRead as _, BufReader, Cursor};
use std::process::{Command, Stdio};
use std::time::Duration;

use mizzen_cri::containerd::Containerd;
use mizzen_cri::messages::*;
use mizzen_cri::{Code, CriClient};
use tokio::time::sleep;

use crate::containerd::{BUSYBOX, PrivateContainerd, docker_archive, image};

/// A sandbox on the host network: it needs no CNI configuration.
fn sandbox(containerd: &PrivateContainerd) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: "web".into(),
            uid: "11-22".into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        log_directory: containerd.path("logs").display().to_string(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(NamespaceOption {
                    network: NamespaceMode::Node as i32,
                    ..NamespaceOption::default()
                }),
                ..LinuxSandboxSecurityContext::default()
            }),
            ..LinuxPodSandboxConfig::default()
        }),
        ..PodSandboxConfig::default()
    }
}

/// Starts a container of a new sandbox with a shell command.
async fn start(client: &CriClient, containerd: &PrivateContainerd, command: &str) -> String {
    start_image(client, containerd, BUSYBOX, command).await
}

async fn start_image(
    client: &CriClient,
    containerd: &PrivateContainerd,
    image: &str,
    command: &str,
) -> String {
    let sandbox_id = run_sandbox(client, containerd).await;
    let container_id = create(client, containerd, (&sandbox_id, 3), (image, command)).await;
    let start = StartContainerRequest {
        container_id: container_id.clone(),
    };
    client.call(start).await.unwrap();
    container_id
}

async fn run_sandbox(client: &CriClient, containerd: &PrivateContainerd) -> String {
    let run = RunPodSandboxRequest {
        config: Some(sandbox(containerd)),
        runtime_handler: String::new(),
    };
    client.call(run).await.unwrap().pod_sandbox_id
}

/// Creates an instance of a container.
async fn create(
    client: &CriClient,
    containerd: &PrivateContainerd,
    (sandbox_id, attempt): (&str, u32),
    (image, command): (&str, &str),
) -> String {
    let create = CreateContainerRequest {
        pod_sandbox_id: sandbox_id.into(),
        config: Some(ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "c".into(),
                attempt,
            }),
            image: Some(ImageSpec {
                image: image.into(),
                ..ImageSpec::default()
            }),
            command: ["sh", "-c", command].map(String::from).to_vec(),
            envs: vec![KeyValue {
                key: "GREETING".into(),
                value: "hello".into(),
            }],
            log_path: "c.log".into(),
            ..ContainerConfig::default()
        }),
        sandbox_config: Some(sandbox(containerd)),
    };
    client.call(create).await.unwrap().container_id
}

async fn status(client: &CriClient, container_id: &str) -> ContainerStatus {
    let request = ContainerStatusRequest {
        container_id: container_id.into(),
        verbose: false,
    };
    client.call(request).await.unwrap().status.unwrap()
}

#[tokio::test]
async fn a_container_runs_in_a_sandbox_and_its_end_is_reported() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    assert_eq!(client.version().runtime_name, "containerd");
    let id = start(&client, &containerd, "echo $GREETING; exit 7").await;
    let ended = loop {
        let status = status(&client, &id).await;
        if status.state() == ContainerState::Exited {
            break status;
        }
        sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((ended.exit_code, ended.metadata.unwrap().attempt), (7, 3));
    assert!(0 < ended.started_at && 0 < ended.finished_at);
    let log = std::fs::read_to_string(containerd.path("logs").join("c.log")).unwrap();
    assert!(log.ends_with(" stdout F hello\n"), "{log}");

    let selected = |value: &str| ListPodSandboxRequest {
        filter: Some(PodSandboxFilter {
            label_selector: [("app".to_owned(), value.to_owned())].into(),
            ..PodSandboxFilter::default()
        }),
    };
    assert_eq!(client.call(selected("web")).await.unwrap().items.len(), 1);
    assert_eq!(client.call(selected("db")).await.unwrap().items.len(), 0);
}

#[tokio::test]
async fn an_imported_image_runs_and_its_files_are_a_snapshot() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let services = Containerd::of(&client).await.unwrap();
    let name = "mizzen.test/imported:1";
    let imported = services.import(Cursor::new(image(&[name], "imported")));
    assert_eq!(imported.await.unwrap()[0].name, name);
    let id = start_image(&client, &containerd, name, "sleep 1000").await;
    assert_eq!(status(&client, &id).await.state(), ContainerState::Running);

    // Layers that were not unpacked are, when they are needed.
    let archive = containerd.path("packed.tar");
    std::fs::write(
        &archive,
        docker_archive("mizzen.test/packed:1", &[&[("a", "1")]]),
    )
    .unwrap();
    let mut import = containerd.ctr(&["images", "import", "--no-unpack"]);
    let output = import.arg(&archive).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let find = ImageStatusRequest {
        image: Some(ImageSpec {
            image: "mizzen.test/packed:1".into(),
            ..ImageSpec::default()
        }),
        verbose: false,
    };
    let image = loop {
        if let Some(image) = client.call(find.clone()).await.unwrap().image {
            break image;
        }
        sleep(Duration::from_millis(20)).await;
    };
    let mounts = services.view(&image, "key", "here").await.unwrap();
    assert_eq!(mounts.len(), 1);
    assert_eq!(services.view(&image, "key", "here").await.unwrap(), mounts);
    for _ in 0..2 {
        services.remove_snapshot("key").await.unwrap();
    }
}

#[tokio::test]
async fn a_command_runs_in_a_container_and_errors_have_their_codes() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let id = start(&client, &containerd, "sleep 1000").await;
    let exec = ExecSyncRequest {
        container_id: id.clone(),
        cmd: ["sh", "-c", "echo out; echo err >&2; exit 3"]
            .map(String::from)
            .to_vec(),
        timeout: 10,
    };
    let ended = client.call(exec).await.unwrap();
    assert_eq!(
        (&*ended.stdout, &*ended.stderr, ended.exit_code),
        (&b"out\n"[..], &b"err\n"[..], 3)
    );
    let missing = ContainerStatusRequest {
        container_id: "none".into(),
        verbose: false,
    };
    assert!(client.call(missing).await.unwrap_err().is_not_found());
    let image = ImageStatusRequest {
        image: Some(ImageSpec {
            image: "mizzen.test/none:1".into(),
            ..ImageSpec::default()
        }),
        verbose: false,
    };
    assert_eq!(client.call(image).await.unwrap().image, None);
    // containerd 1.6 has no event stream; later ones report what happened here.
    match client.events().next().await {
        Ok(event) => assert!(event.is_some()),
        Err(error) => assert_eq!(error.code, Code::Unimplemented, "{error}"),
    }
}

#[tokio::test]
async fn containers_outlive_the_runtime_and_the_client_finds_it_again() {
    let Some(mut containerd) = PrivateContainerd::start().await else {
        return;
    };
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let id = start(&client, &containerd, "sleep 1000").await;
    containerd.kill();
    let request = ListContainersRequest::default();
    let error = client.call(request).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    containerd.launch().await;
    assert_eq!(status(&client, &id).await.state(), ContainerState::Running);
}

/// The variable with the endpoint and the container that a process starts.
const STARTS: &str = "MIZZEN_STARTS";
/// What the process says before it calls.
const CALLS: &str = "it calls";

#[tokio::test]
#[ignore = "a process that another test kills"]
async fn starting_process() {
    let Ok(starts) = std::env::var(STARTS) else {
        return;
    };
    let (endpoint, container_id) = starts.split_once(' ').unwrap();
    let client = CriClient::connect(endpoint).await.unwrap();
    println!("{CALLS}");
    let container_id = container_id.into();
    let start = StartContainerRequest { container_id };
    client.call_to_the_end(start).await.unwrap();
    std::future::pending().await
}

#[tokio::test]
async fn a_start_goes_on_when_the_process_that_has_called_is_killed() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let sandbox_id = run_sandbox(&client, &containerd).await;
    // A start takes some 100 ms.
    for attempt in 0..4 {
        let instance = (sandbox_id.as_str(), attempt);
        let id = create(&client, &containerd, instance, (BUSYBOX, "sleep 1000")).await;
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["runtime::starting_process", "--exact", "--ignored"])
            .arg("--nocapture")
            .env(STARTS, format!("{} {id}", containerd.endpoint()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(CALLS)));
        sleep(Duration::from_millis(10 + 30 * u64::from(attempt))).await;
        process.kill().unwrap();
        process.wait().unwrap();
        let state = loop {
            match status(&client, &id).await.state() {
                ContainerState::Created => sleep(Duration::from_millis(10)).await,
                state => break state,
            }
        };
        assert_eq!(state, ContainerState::Running, "attempt {attempt}");
    }
}
