//! The container image, the Debian package and the pipelines: packages are built, installed into an empty directory, and run
//! there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use mizzen_value::yaml;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{Client, Credentials};
use crate::kubectl::skip;
use crate::process::{STEP_TIMEOUT, leave_package};

const MIZZEN: &str = env!("CARGO_BIN_EXE_mizzen");

/// How long `cargo install` may compile, on a busy machine.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(1800);

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A package with a debug binary is large, and /tmp may be in memory.
fn temporary_directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The output of a program that must succeed; none, with a message, if it is not installed.
async fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let run = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let run = match timeout(STEP_TIMEOUT, run).await.expect("ends") {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skip(&format!("no {program} installed"));
            return None;
        }
        run => run.unwrap(),
    };
    assert!(run.status.success(), "{program} {arguments:?}: {run:?}");
    Some(String::from_utf8(run.stdout).unwrap())
}

/// Builds a package with the binary under test, and returns its path.
async fn build(package: &str, out: &Path) -> Option<PathBuf> {
    let script = repository().join("packaging").join(package).join("build");
    let (script, out) = (script.to_str().unwrap(), out.to_str().unwrap());
    let arguments = [
        script,
        "--binary",
        MIZZEN,
        "--out",
        out,
        "--compression",
        "0",
    ];
    let path = output("python3", &arguments).await?;
    Some(path.trim().into())
}

/// A server that a package runs.
struct Packaged {
    child: tokio::process::Child,
    address: String,
}

impl Packaged {
    /// Starts it, and waits until it is ready.
    async fn start(mut command: Command) -> Packaged {
        let mut child = command
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(STEP_TIMEOUT, lines.next_line()).await.unwrap();
        let line = line.unwrap().expect("the server says that it is ready");
        let port = line
            .split_once("https://")
            .and_then(|(_, rest)| rest.split(' ').next()?.rsplit_once(':'));
        let (_, port) = port.unwrap_or_else(|| panic!("no address in {line:?}"));
        let address = format!("127.0.0.1:{port}");
        Packaged { child, address }
    }

    /// Uses it as a client does, and stops it.
    async fn exercise(mut self, kubeconfig: &Path) {
        let admin = Credentials::read(kubeconfig);
        let client = Client::connect(&self.address, &admin, &["h2"]).await;
        client.get("/readyz").await.expect(200);
        let maps = "/api/v1/namespaces/default/configmaps";
        let created = r#"{"metadata":{"name":"packaged"},"data":{"a":"b"}}"#;
        client.post(maps, created).await.expect(201);
        let stored = client.get(&format!("{maps}/packaged")).await.expect(200);
        assert_eq!(stored.json()["data"]["a"], "b");
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let status = timeout(STEP_TIMEOUT, self.child.wait()).await.unwrap();
        assert_eq!(status.unwrap().code(), Some(0));
    }
}

/// Reads a blob of an image layout, whose digest must match.
fn blob(layout: &Path, descriptor: &Value) -> (PathBuf, Vec<u8>) {
    let name = descriptor["digest"].as_str().unwrap();
    let path = layout.join("blobs").join(name.replace(':', "/"));
    let data = std::fs::read(&path).unwrap();
    assert_eq!(descriptor["size"], data.len(), "{name}");
    assert_eq!(name, sha256(&data));
    (path, data)
}

fn sha256(data: &[u8]) -> String {
    let bytes = digest(&SHA256, data);
    let hexadecimal: String = bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hexadecimal}")
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().expect("a list").iter()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn the_image_is_reproducible_and_its_server_runs_without_privileges() {
    let home = temporary_directory();
    let (layout, root) = (home.path().join("layout"), home.path().join("root"));
    let Some(image) = build("image", &home.path().join("dist")).await else {
        return;
    };
    let again = build("image", &home.path().join("again")).await.unwrap();
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&again).unwrap());
    for directory in [&layout, &root] {
        std::fs::create_dir(directory).unwrap();
    }
    let unpack = async |archive: &Path, to: &Path| {
        let (archive, to) = (archive.to_str().unwrap(), to.to_str().unwrap());
        let arguments = ["-xf", archive, "-C", to, "--numeric-owner", "-p"];
        output("tar", &arguments).await.expect("tar is installed");
    };
    unpack(&image, &layout).await;

    let version = &read_json(&layout.join("oci-layout"))["imageLayoutVersion"];
    assert_eq!(*version, "1.0.0");
    let index = read_json(&layout.join("index.json"));
    let (_, manifest) = blob(&layout, &index["manifests"][0]);
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let (config_path, config) = blob(&layout, &manifest["config"]);
    let config: Value = serde_json::from_slice(&config).unwrap();
    let docker = read_json(&layout.join("manifest.json"));
    let docker_config = docker[0]["Config"].as_str().unwrap();
    assert_eq!(layout.join(docker_config), config_path);
    for (n, layer) in items(&manifest["layers"]).enumerate() {
        let (path, data) = blob(&layout, layer);
        // Without compression, a layer is what its identifier is the digest of.
        assert_eq!(config["rootfs"]["diff_ids"][n], sha256(&data).as_str());
        let docker_layer = docker[0]["Layers"][n].as_str().unwrap();
        assert_eq!(layout.join(docker_layer), path);
        unpack(&path, &root).await;
    }

    let config = &config["config"];
    assert_eq!(config["User"], "65532:65532");
    assert!(config["ExposedPorts"]["6443/tcp"].is_object());
    if !Uid::effective().is_root() {
        eprintln!("SKIPPED: only root can change the root directory");
        return;
    }
    let mut command = Command::new("/usr/sbin/chroot");
    command
        .arg(format!("--userspec={}", config["User"].as_str().unwrap()))
        .arg(&root);
    for words in [&config["Entrypoint"], &config["Cmd"]] {
        command.args(items(words).map(|word| word.as_str().unwrap()));
    }
    command.arg("--port=0");
    let server = Packaged::start(command).await;
    let kubeconfig = root.join("var/lib/mizzen/admin.kubeconfig");
    server.exercise(&kubeconfig).await;
}

#[tokio::test]
async fn the_debian_package_installs_runs_and_purges() {
    let home = temporary_directory();
    let root = home.path().join("root");
    let database = root.join("var/lib/dpkg");
    std::fs::create_dir_all(database.join("updates")).unwrap();
    std::fs::create_dir_all(database.join("info")).unwrap();
    std::fs::write(database.join("status"), "").unwrap();
    let Some(package) = build("debian", &home.path().join("dist")).await else {
        return;
    };
    let package = package.to_str().unwrap();
    let fields = output("dpkg-deb", &["--field", package, "Package", "Depends"]).await;
    let Some(fields) = fields else {
        return;
    };
    assert!(fields.starts_with("Package: mizzen\nDepends: libc6 (>= 2."));

    let in_root = format!("--root={}", root.display());
    let dpkg = async |arguments: &[&str]| {
        // Scripts run here, not in the directory, which has no shell; they know it by DPKG_ROOT.
        let mut all = vec![
            in_root.as_str(),
            "--force-not-root",
            "--force-script-chrootless",
            "--force-depends",
        ];
        all.extend(arguments);
        output("dpkg", &all).await.expect("dpkg is installed")
    };
    dpkg(&["--install", package]).await;
    let status = std::fs::read_to_string(database.join("status")).unwrap();
    assert!(status.contains("Status: install ok installed"), "{status}");
    let unit_path = root.join("usr/lib/systemd/system/mizzen.service");
    let unit = std::fs::read_to_string(&unit_path).unwrap();
    let binary = root.join("usr/bin/mizzen");
    let binary = binary.to_str().unwrap();

    // The command of the unit, with the directory that systemd makes.
    let state = root.join("var/lib/mizzen");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let start = start
        .unwrap()
        .replace("/usr/bin/mizzen", binary)
        .replace("${STATE_DIRECTORY}", state.to_str().unwrap())
        .replace("$MIZZEN_FLAGS", "--port=0");
    let mut words = start.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let server = Packaged::start(command).await;
    server.exercise(&state.join("admin.kubeconfig")).await;

    let verified = home.path().join("mizzen.service");
    std::fs::write(&verified, unit.replace("/usr/bin/mizzen", binary)).unwrap();
    let verified = verified.to_str().unwrap();
    output("systemd-analyze", &["verify", "--man=no", verified]).await;

    dpkg(&["--purge", "mizzen"]).await;
    for path in ["usr/bin/mizzen", "etc/default/mizzen", "var/lib/mizzen"] {
        assert!(!root.join(path).exists(), "{path}");
    }
}

/// What `cargo install --path crates/cluster` installs, from a debug build that is there already for the most part.
#[tokio::test]
async fn cargo_installs_a_binary_that_runs() {
    if std::env::var("CI").as_deref() != Ok("true") {
        eprintln!("SKIPPED: the binary is compiled for cargo install in CI only (CI=true)");
        return;
    }
    let home = temporary_directory();
    // What this workspace has compiled is used, but its programs are not replaced.
    let compiled = Path::new(MIZZEN).ancestors().nth(2).unwrap();
    let mut install = Command::new(env!("CARGO"));
    leave_package(install.as_std_mut());
    let install = install
        .args(["install", "--debug", "--locked", "--offline", "--path"])
        .arg(env!("CARGO_MANIFEST_DIR"))
        .arg("--root")
        .arg(home.path())
        .env("CARGO_BUILD_BUILD_DIR", compiled)
        .env("CARGO_TARGET_DIR", home.path().join("target"))
        .stdin(Stdio::null())
        .output();
    let install = timeout(INSTALL_TIMEOUT, install).await.expect("ends");
    let install = install.unwrap();
    assert!(install.status.success(), "{install:?}");
    let kubeconfig = home.path().join("kubeconfig");
    let mut command = Command::new(home.path().join("bin/mizzen"));
    command
        .args(["up", "--in-memory", "--port=0", "--kubeconfig"])
        .arg(&kubeconfig);
    Packaged::start(command).await.exercise(&kubeconfig).await;
}

/// Every command of a pipeline that names a file of the repository names one that exists.
#[test]
fn pipelines_are_yaml_and_run_what_exists() {
    let root = repository();
    let mut n_commands = 0;
    for entry in std::fs::read_dir(root.join(".github/workflows")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        let workflow: Value = serde_json::from_slice(&yaml::to_json(&text).unwrap()).unwrap();
        for (name, job) in workflow["jobs"].as_object().expect("it has jobs") {
            assert!(job["runs-on"].as_str().is_some(), "{name}");
            for run in items(&job["steps"]).filter_map(|step| step["run"].as_str()) {
                for word in run.split_whitespace() {
                    let is_ours = ["./", "packaging/", "tools/", ".ci/"]
                        .iter()
                        .any(|prefix| word.starts_with(prefix));
                    if is_ours {
                        assert!(root.join(word).exists(), "{name}: {word}");
                        n_commands += 1;
                    }
                }
            }
        }
    }
    assert!(n_commands > 0);
}
