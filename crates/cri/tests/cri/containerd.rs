//! A private containerd: its own root, state, socket, network configuration and images.
//!
//! It needs root, Debian's `containerd`, `runc`, `containernetworking-plugins` and `busybox-static`. Without them
//! [`PrivateContainerd::start`] says SKIPPED and what is missing, and returns nothing; in CI that is a failure.
//!
//! Images are OCI archives with busybox, made here: no registry is needed. One more has a program of ours, too
//! (`workload/main.rs`), whose usage, ports, signals and files tests know.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "several suites include this file, and each uses a part"
)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mizzen_cri::CriClient;
use mizzen_cri::messages::{ListPodSandboxRequest, RemovePodSandboxRequest, StopPodSandboxRequest};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// The image with busybox.
pub const BUSYBOX: &str = "mizzen.test/busybox:1";
/// The image of sandboxes.
pub const PAUSE: &str = "mizzen.test/pause:1";
/// The image with busybox and `/bin/workload`, which [`PrivateContainerd::import_workload`] imports.
pub const WORKLOAD: &str = "mizzen.test/workload:1";
const WORKLOAD_SOURCE: &str = include_str!("workload/main.rs");
/// Where distributions put the CNI plug-ins.
const PLUGIN_DIRS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
/// The statically linked busybox.
const PROGRAM: &str = "/bin/busybox";
/// The commands of busybox in the image.
const APPLETS: &str = "cat date echo env false head hostname httpd id kill ls mkdir mount nc nslookup printf ps pwd rm sed \
                       seq sh sleep sort stat stty tail tar test touch tr true tty wc wget";

/// A containerd that runs until it is dropped, with its containers.
pub struct PrivateContainerd {
    dir: TempDir,
    process: Option<Child>,
}

impl PrivateContainerd {
    /// Starts one, if the machine can.
    pub async fn start() -> Option<PrivateContainerd> {
        let missing = missing();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "no real containers can be tested: {missing}"
            );
            println!("SKIPPED: no real containers are tested: {missing}");
            return None;
        }
        let dir = TempDir::with_prefix("mizzen-cri-").unwrap();
        let mut containerd = PrivateContainerd { dir, process: None };
        containerd.configure();
        containerd.launch().await;
        containerd.import(&[PAUSE, BUSYBOX]);
        Some(containerd)
    }

    /// Its endpoint.
    pub fn endpoint(&self) -> String {
        endpoint(self.dir.path())
    }

    /// Its directory of CNI configurations, which is empty.
    pub fn network_dir(&self) -> PathBuf {
        network_dir(self.dir.path())
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Kills it. Its containers run on.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it, or starts it again.
    pub async fn launch(&mut self) {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .unwrap();
        let process = Command::new("containerd")
            .arg("--config")
            .arg(self.path("config.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("containerd is installed");
        self.process = Some(process);
        for _ in 0..600 {
            if CriClient::connect(&self.endpoint()).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        panic!("containerd does not answer:\n{log}");
    }

    /// Unmounts what is left below its directory, such as volumes of pods that a test did not delete.
    fn unmount(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        // What is mounted in a mount comes after it.
        let places = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.dir.path())) {
            let _ = Command::new("umount").arg(place).output();
        }
    }

    /// Removes the bridges and the records of addresses that CNI plug-ins leave on the machine.
    fn remove_networks(&self) {
        for entry in fs::read_dir(self.network_dir()).into_iter().flatten() {
            let text = entry.and_then(|entry| fs::read_to_string(entry.path()));
            let text = text.unwrap_or_default();
            let field = |name: &str| {
                let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
                rest.split_once('"').map(|(value, _)| value.to_owned())
            };
            if let Some(bridge) = field("bridge") {
                let _ = Command::new("ip")
                    .args(["link", "delete", &bridge])
                    .output();
            }
            if let Some(network) = field("name") {
                let _ = fs::remove_dir_all(Path::new("/var/lib/cni/networks").join(network));
            }
        }
    }

    fn configure(&self) {
        fs::create_dir(self.network_dir()).unwrap();
        let plugins = plugin_dir().expect("the CNI plug-ins are installed");
        let path = |name: &str| self.path(name).display().to_string();
        // A sandbox in which these tests run may not lower the OOM score.
        let configuration = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = {PAUSE:?}\nrestrict_oom_score_adj = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = {plugins:?}\nconf_dir = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = {:?}\n",
            path("root"),
            path("state"),
            path("containerd.sock"),
            path("cni"),
            path("certs.d"),
        );
        fs::write(self.path("config.toml"), configuration).unwrap();
    }

    /// Imports the image with busybox by other names.
    pub fn import(&self, names: &[&str]) {
        self.import_of(names, "");
    }

    /// Imports another image with busybox.
    pub fn import_of(&self, names: &[&str], author: &str) {
        self.import_archive(&image(names, author));
    }

    /// Imports the image [`WORKLOAD`].
    pub fn import_workload(&self) {
        let program = fs::read(workload()).unwrap();
        let parts = ImageParts::of(layer(&[("bin/workload", &program)]), "");
        self.import_archive(&archive(&[WORKLOAD], &parts));
    }

    fn import_archive(&self, content: &[u8]) {
        let archive = self.path("image.tar");
        fs::write(&archive, content).unwrap();
        let (archive, output) = (
            archive.to_str().unwrap().to_owned(),
            self.ctr(&["images", "import"]),
        );
        let output = { output }.arg(archive).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A command of containerd's client, in the namespace of the interface.
    pub fn ctr(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ctr");
        command
            .arg("--address")
            .arg(self.path("containerd.sock"))
            .args(["--namespace", "k8s.io"])
            .args(arguments);
        command
    }
}

impl Drop for PrivateContainerd {
    /// Removes all containers, which would outlive containerd.
    fn drop(&mut self) {
        std::thread::scope(|scope| {
            let cleaning = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    if self.process.is_none() {
                        self.launch().await;
                    }
                    remove_sandboxes(&self.endpoint()).await;
                });
            });
            let _ = cleaning.join();
        });
        self.kill();
        self.unmount();
        self.remove_networks();
    }
}

/// The endpoint of the containerd in a directory.
pub fn endpoint(dir: &Path) -> String {
    format!("unix://{}", dir.join("containerd.sock").display())
}

/// The directory of CNI configurations of the containerd in a directory.
pub fn network_dir(dir: &Path) -> PathBuf {
    dir.join("cni")
}

async fn remove_sandboxes(endpoint: &str) {
    let Ok(client) = CriClient::connect(endpoint).await else {
        return;
    };
    let listed = client.call(ListPodSandboxRequest::default()).await;
    for sandbox in listed.map(|listed| listed.items).unwrap_or_default() {
        let pod_sandbox_id = sandbox.id;
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: pod_sandbox_id.clone(),
        };
        let _ = client.call(stop).await;
        let _ = client
            .call(RemovePodSandboxRequest { pod_sandbox_id })
            .await;
    }
}

/// The program of [`WORKLOAD`], which is compiled once for all tests.
fn workload() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(2).unwrap();
    let version = &digest(WORKLOAD_SOURCE.as_bytes())["sha256:".len()..][..16];
    let program = target.join(format!("workload-{version}"));
    let lock = fs::File::create(target.join("workload.lock")).unwrap();
    lock.lock().unwrap();
    if program.exists() {
        return program;
    }
    let made = program.with_extension("new");
    let mut rustc = Command::new("rustc")
        .args(["--crate-name=workload", "--edition=2024", "-O"])
        .args(["-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-o"])
        .args([made.as_os_str(), "-".as_ref()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut source = rustc.stdin.take().unwrap();
    source.write_all(WORKLOAD_SOURCE.as_bytes()).unwrap();
    drop(source);
    assert!(rustc.wait().unwrap().success(), "workload/main.rs compiles");
    fs::rename(made, &program).unwrap();
    program
}

/// What the machine lacks.
fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if fs::metadata("/proc/self").map(|it| it.uid()).ok() != Some(0) {
        missing.push("root is required".into());
    }
    for program in ["containerd", "ctr", "runc"] {
        if !is_on_path(program) {
            missing.push(format!("no {program} is installed"));
        }
    }
    if plugin_dir().is_none() {
        missing.push("no containernetworking-plugins are installed".into());
    }
    // A dynamically linked one does not run in an image of its own.
    let is_static = fs::read(PROGRAM).is_ok_and(|program| {
        !program
            .windows(INTERPRETER.len())
            .any(|part| part == INTERPRETER)
    });
    if !is_static {
        missing.push("no busybox-static is installed".into());
    }
    missing
}

/// The start of the path of the dynamic linker.
const INTERPRETER: &[u8] = b"/lib64/ld-linux";

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Where the CNI plug-ins are.
pub fn plugin_dir() -> Option<&'static str> {
    PLUGIN_DIRS
        .into_iter()
        .find(|dir| Path::new(dir).join("bridge").is_file())
}

/// The blobs of an image with busybox.
pub struct ImageParts {
    /// The layer, not compressed.
    pub layer: Vec<u8>,
    /// The configuration.
    pub config: String,
    /// The manifest.
    pub manifest: String,
}

impl ImageParts {
    /// Makes them. Images of different authors have different IDs.
    pub fn new(author: &str) -> ImageParts {
        ImageParts::of(layer(&[]), author)
    }

    fn of(layer: Vec<u8>, author: &str) -> ImageParts {
        let config = image_config(&format!("{:?}", digest(&layer)), author);
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
            descriptor("config.v1+json", config.as_bytes(), ""),
            descriptor("layer.v1.tar", &layer, "")
        );
        ImageParts {
            layer,
            config,
            manifest,
        }
    }
}

/// The configuration of an image with these layers, as a list in JSON.
fn image_config(diffs: &str, author: &str) -> String {
    format!(
        r#"{{"author":"{author}","architecture":"{}","os":"linux","config":{{"Env":["PATH=/bin"],"Cmd":["sleep","2147483647"]}},"rootfs":{{"type":"layers","diff_ids":[{diffs}]}}}}"#,
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    )
}

/// An OCI archive with busybox, by several names.
pub fn image(names: &[&str], author: &str) -> Vec<u8> {
    archive(names, &ImageParts::new(author))
}

/// An OCI archive with an image by several names.
fn archive(names: &[&str], parts: &ImageParts) -> Vec<u8> {
    let ImageParts {
        layer,
        config,
        manifest,
    } = parts;
    let entries: Vec<String> = names
        .iter()
        .map(|name| {
            let named = format!(r#","annotations":{{"io.containerd.image.name":"{name}"}}"#);
            descriptor("manifest.v1+json", manifest.as_bytes(), &named)
        })
        .collect();
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        entries.join(",")
    );
    let mut archive = tar::Builder::new(Vec::new());
    add(
        &mut archive,
        "oci-layout",
        br#"{"imageLayoutVersion":"1.0.0"}"#,
        0o644,
    );
    add(&mut archive, "index.json", index.as_bytes(), 0o644);
    for blob in [layer, config.as_bytes(), manifest.as_bytes()] {
        let path = format!("blobs/sha256/{}", &digest(blob)["sha256:".len()..]);
        add(&mut archive, &path, blob, 0o644);
    }
    archive.into_inner().unwrap()
}

/// A tarball as `docker save` makes it, of layers of small files.
pub fn docker_archive(name: &str, layers: &[&[(&str, &str)]]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let (mut diffs, mut paths) = (Vec::new(), Vec::new());
    for (layer_idx, files) in layers.iter().enumerate() {
        let mut layer = tar::Builder::new(Vec::new());
        for (path, content) in *files {
            add(&mut layer, path, content.as_bytes(), 0o755);
        }
        let layer = layer.into_inner().unwrap();
        let path = format!("{layer_idx}/layer.tar");
        add(&mut archive, &path, &layer, 0o644);
        diffs.push(format!("{:?}", digest(&layer)));
        paths.push(format!("{path:?}"));
    }
    let config = image_config(&diffs.join(","), "");
    add(&mut archive, "config.json", config.as_bytes(), 0o644);
    let manifest = format!(
        r#"[{{"Config":"config.json","RepoTags":[{name:?}],"Layers":[{}]}}]"#,
        paths.join(",")
    );
    add(&mut archive, "manifest.json", manifest.as_bytes(), 0o644);
    archive.into_inner().unwrap()
}

/// A layer with busybox and more programs.
fn layer(programs: &[(&str, &[u8])]) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for (path, mode) in [("bin/", 0o755), ("etc/", 0o755), ("tmp/", 0o1777)] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(mode);
        header.set_size(0);
        layer
            .append_data(&mut header, path, std::io::empty())
            .unwrap();
    }
    add(
        &mut layer,
        "bin/busybox",
        &fs::read(PROGRAM).unwrap(),
        0o755,
    );
    for (path, program) in programs {
        add(&mut layer, path, program, 0o755);
    }
    for applet in APPLETS.split_whitespace() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        layer
            .append_link(&mut header, format!("bin/{applet}"), "busybox")
            .unwrap();
    }
    layer.into_inner().unwrap()
}

fn add(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, path, content).unwrap();
    archive.get_mut().flush().unwrap();
}

fn descriptor(kind: &str, content: &[u8], more: &str) -> String {
    let (digest, size) = (digest(content), content.len());
    format!(
        r#"{{"mediaType":"application/vnd.oci.image.{kind}","digest":"{digest}","size":{size}{more}}}"#
    )
}

/// The digest of a blob.
pub fn digest(content: &[u8]) -> String {
    let hex = |byte: &u8| format!("{byte:02x}");
    format!(
        "sha256:{}",
        Sha256::digest(content).iter().map(hex).collect::<String>()
    )
}
