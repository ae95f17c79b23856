//! A registry of images on loopback: Debian's `docker-registry`, for a user with a password.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::containerd::{ImageParts, PrivateContainerd, digest};

/// The user, the password and its hash.
pub(crate) const USER: (&str, &str) = ("user", "pass");
const HASH: &str = "$2b$05$XGYBvR/QhDgg1FA8QMMT3OmxgjlI0tz880IP6..KjoaLV.RHrHtbO";

/// A registry that runs until it is dropped.
pub(crate) struct Registry {
    process: Child,
    port: u16,
}

impl Registry {
    /// Starts one with its files in the directory of containerd, which may use it by plain HTTP.
    pub(crate) async fn start(containerd: &PrivateContainerd) -> Option<Registry> {
        let Some(program) = program() else {
            let missing = "no docker-registry is installed";
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "no pull with credentials can be tested: {missing}"
            );
            println!("SKIPPED: no pull with credentials is tested: {missing}");
            return None;
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let (config, users) = (containerd.path("registry.yml"), containerd.path("htpasswd"));
        fs::write(&users, format!("{}:{HASH}\n", USER.0)).unwrap();
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {:?}}}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\nauth: {{htpasswd: {{realm: test, path: {users:?}}}}}\n",
            containerd.path("registry"),
        );
        fs::write(&config, text).unwrap();
        let hosts = containerd.path("certs.d").join(format!("127.0.0.1:{port}"));
        fs::create_dir_all(&hosts).unwrap();
        let text =
            format!("[host.\"http://127.0.0.1:{port}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
        fs::write(hosts.join("hosts.toml"), text).unwrap();
        let process = Command::new(program)
            .arg("serve")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let registry = Registry { process, port };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Some(registry);
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("the registry does not listen");
    }

    /// The name of an image in it.
    pub(crate) fn name(&self, path: &str) -> String {
        format!("{}/{path}", self.host())
    }

    /// Its host and port.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Pushes the image with busybox.
    pub(crate) async fn push(&self, repository: &str, tag: &str) {
        let ImageParts {
            layer,
            config,
            manifest,
        } = ImageParts::new("");
        for blob in [layer.as_slice(), config.as_bytes()] {
            let started = self
                .send("POST", &format!("/v2/{repository}/blobs/uploads/"), "", b"")
                .await;
            let location = started
                .lines()
                .find_map(|line| line.strip_prefix("Location: "))
                .unwrap_or_else(|| panic!("{started}"));
            let at = location.find("/v2/").unwrap();
            let place = format!("{}&digest={}", &location[at..], digest(blob));
            let done = self
                .send("PUT", &place, "application/octet-stream", blob)
                .await;
            assert!(done.starts_with("HTTP/1.1 201"), "{done}");
        }
        let place = format!("/v2/{repository}/manifests/{tag}");
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let done = self.send("PUT", &place, kind, manifest.as_bytes()).await;
        assert!(done.starts_with("HTTP/1.1 201"), "{done}");
    }

    /// Sends a request, and returns the head of the response.
    async fn send(&self, method: &str, place: &str, kind: &str, body: &[u8]) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let auth = STANDARD.encode(format!("{}:{}", USER.0, USER.1));
        let (host, length) = (self.host(), body.len());
        let head = format!(
            "{method} {place} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {auth}\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.write_all(body).await.unwrap();
        let mut response = Vec::new();
        connection.read_to_end(&mut response).await.unwrap();
        String::from_utf8_lossy(&response).replace('\r', "")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program of the distribution, or the one that `./check` unpacks.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let unpacked = tools.join("docker-registry/usr/bin");
    std::env::split_paths(&path)
        .chain([unpacked])
        .map(|dir| dir.join("docker-registry"))
        .find(|program| program.is_file())
}
