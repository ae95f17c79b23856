//! `mizzen image load`, with a private containerd.

use std::io::Write as _;
use std::process::Stdio;

use flate2::Compression;
use flate2::write::GzEncoder;
use mizzen_cri::CriClient;
use mizzen_cri::messages::{ImageSpec, ImageStatusRequest};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{Outcome, User};
use crate::containerd::{PrivateContainerd, docker_archive, image};
use crate::process::STEP_TIMEOUT;
use crate::registry::{self, Registry};

const LAYERS: [&[(&str, &str)]; 2] = [&[("a", "1")], &[("b", "2")]];

impl User {
    /// The outcome of `mizzen image load` with these arguments and this standard input.
    async fn load(&self, containerd: &PrivateContainerd, arguments: &str, input: &[u8]) -> Outcome {
        let mut command = self.command(&format!("image load {arguments} --cri-endpoint"));
        command
            .arg(containerd.endpoint())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let (_, output) = tokio::join!(
            async move {
                // The command may end before it has read all.
                let _ = stdin.write_all(input).await;
            },
            timeout(STEP_TIMEOUT, process.wait_with_output()),
        );
        Outcome::from(output.expect("it ends by itself").unwrap())
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The chain of an image's layers, if the runtime has the image.
async fn find(client: &CriClient, name: &str) -> Option<(String, String)> {
    let request = ImageStatusRequest {
        image: Some(ImageSpec {
            image: name.into(),
            ..ImageSpec::default()
        }),
        verbose: true,
    };
    let status = client.call(request).await.unwrap();
    let info = status.info.get("info").cloned().unwrap_or_default();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap_or_default();
    let chain = info["chainID"].as_str().unwrap_or_default().to_owned();
    Some((status.image?.id, chain))
}

#[tokio::test]
async fn images_of_tarballs_are_imported() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let user = User::new();
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    let archive = docker_archive("mizzen.test/docker:1", &LAYERS);
    std::fs::write(user.path().join("docker.tar"), &archive).unwrap();
    let loaded = user.load(&containerd, "docker.tar", b"").await.expect(0);
    assert_eq!(loaded.stdout, "imported mizzen.test/docker:1\n");
    let (first, chain) = find(&client, "mizzen.test/docker:1").await.unwrap();
    let stat = containerd
        .ctr(&["snapshots", "info", &chain])
        .output()
        .unwrap();
    assert!(stat.status.success(), "{chain}");

    // What was imported before is imported again, and a name can get another image.
    let names = ["mizzen.test/oci:1", "mizzen.test/docker:1"];
    for _ in 0..2 {
        let input = gzip(&image(&names, "another"));
        let loaded = user.load(&containerd, "-", &input).await.expect(0);
        let expected = "imported mizzen.test/oci:1\nimported mizzen.test/docker:1\n";
        assert_eq!(loaded.stdout, expected);
    }
    let (second, _) = find(&client, "mizzen.test/docker:1").await.unwrap();
    assert_ne!(first, second);
    assert_eq!(find(&client, "mizzen.test/oci:1").await.unwrap().0, second);
    let leases = containerd
        .ctr(&["leases", "list", "--quiet"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&leases.stdout), "");
}

#[tokio::test]
async fn what_cannot_be_loaded_is_said() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let user = User::new();
    std::fs::write(user.path().join("text.tar"), "hello").unwrap();
    let archive = docker_archive("mizzen.test/docker:1", &LAYERS);
    std::fs::write(user.path().join("short.tar"), &archive[..3000]).unwrap();
    for (arguments, code, why) in [
        (
            "text.tar",
            1,
            "text.tar: not a tarball of images, such as docker save makes",
        ),
        ("short.tar", 1, "short.tar: "),
        ("none.tar", 1, "none.tar: No such file or directory"),
        (
            "Upper:1",
            1,
            "\"Upper:1\" is not a file, and not the name of an image",
        ),
        ("127.0.0.1:1/none:1", 1, "cannot pull 127.0.0.1:1/none:1: "),
        ("- -", 1, "standard input is a tarball or a password"),
        ("a --username jane", 2, "--password-stdin"),
        ("", 2, "<FILE|IMAGE>"),
    ] {
        let failed = user.load(&containerd, arguments, b"").await;
        assert!(failed.stderr.contains(why), "{arguments}: {failed:?}");
        assert_eq!(failed.expect(code).stdout, "", "{arguments}");
    }
    let nowhere = "image load text.tar --cri-endpoint unix:///nowhere/containerd.sock";
    let failed = user.mizzen(nowhere).await.expect(1);
    let expected = "mizzen image load: no container runtime at unix:///nowhere/containerd.sock";
    assert!(failed.stderr.starts_with(expected), "{}", failed.stderr);
}

#[tokio::test]
async fn images_of_registries_are_pulled_with_a_password() {
    let Some(containerd) = PrivateContainerd::start().await else {
        return;
    };
    let Some(registry) = Registry::start(&containerd).await else {
        return;
    };
    registry.push("team/app", "1").await;
    let name = registry.name("team/app:1");
    let user = User::new();
    let (account, password) = registry::USER;
    let arguments = format!("{name} --username {account} --password-stdin");
    let refused = user
        .load(&containerd, &arguments, b"wrong\n")
        .await
        .expect(1);
    assert!(
        refused.stderr.contains("401 Unauthorized"),
        "{}",
        refused.stderr
    );
    let input = format!("{password}\n");
    let pulled = user.load(&containerd, &arguments, input.as_bytes()).await;
    assert_eq!(pulled.expect(0).stdout, format!("pulled {name}\n"));
    let client = CriClient::connect(&containerd.endpoint()).await.unwrap();
    assert!(find(&client, &name).await.is_some());
}
