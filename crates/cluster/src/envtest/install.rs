//! `mizzen envtest`: a directory for `KUBEBUILDER_ASSETS`.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{Program, kubectl};
use crate::command::data_home;

/// The version of Kubernetes that is served.
const VERSION: &str = "1.36.4";

/// Be the kube-apiserver and etcd of envtest suites
#[derive(Args)]
#[command(
    after_help = "Example:\n  eval \"$(mizzen envtest install)\"\n  go test ./...\n\n\
                  Set MIZZEN_ENVTEST_LOOPS=gc,namespace or MIZZEN_ENVTEST_LOOPS=all to run controllers, scheduler and nodes \
                  beside the API server of a suite"
)]
pub(crate) struct Envtest {
    #[command(subcommand)]
    command: EnvtestCommand,
}

#[derive(Subcommand)]
enum EnvtestCommand {
    /// Fill a directory with kube-apiserver, etcd and kubectl, and print the export of KUBEBUILDER_ASSETS
    Install(Install),
}

/// Fill a directory with kube-apiserver, etcd and kubectl, all links to this binary, and print the export of
/// KUBEBUILDER_ASSETS
#[derive(Args)]
#[command(after_help = "Example:\n  eval \"$(mizzen envtest install ./bin)\"\n  go test ./...")]
struct Install {
    /// The directory [default: ~/.local/share/mizzen/envtest]
    #[arg(value_name = "DIR", conflicts_with = "setup_envtest")]
    directory: Option<PathBuf>,
    /// Install where setup-envtest keeps its downloads, as this version of Kubernetes, so that `setup-envtest use -i -p path
    /// VERSION` finds it. The API server is that of v1.36.4 under any name
    #[arg(
        long,
        value_name = "VERSION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = VERSION,
        value_parser = parse_version
    )]
    setup_envtest: Option<String>,
    /// The directory of setup-envtest's downloads, as its own flag [default: that of setup-envtest]
    #[arg(long, value_name = "DIR", requires = "setup_envtest")]
    bin_dir: Option<PathBuf>,
    /// Replace files that are not links to mizzen
    #[arg(long)]
    force: bool,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    /// Another program has the name.
    #[error("{} exists and is not a link to mizzen; choose another directory, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The binary cannot be found.
    #[error("cannot find the path of this binary")]
    Binary(#[source] io::Error),
}

impl Envtest {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> Result<(), InstallError> {
        let EnvtestCommand::Install(install) = self.command;
        let binary = std::env::current_exe().map_err(InstallError::Binary)?;
        let directory = match (install.directory, install.setup_envtest) {
            (Some(directory), _) => directory,
            (None, Some(version)) => {
                let store = install.bin_dir.unwrap_or_else(setup_envtest_store);
                store.join(setup_envtest_directory(&version))
            }
            (None, None) => data_home().join("mizzen/envtest"),
        };
        let directory = fill(&directory, &binary, install.force)?;
        if kubectl::find().is_none() {
            crate::log::print_error!(
                "note: there is no kubectl on the PATH, so the installed link has none to run"
            );
        }
        let quoted = directory.display().to_string().replace('\'', r"'\''");
        crate::log::write_output(format_args!("export KUBEBUILDER_ASSETS='{quoted}'"));
        Ok(())
    }
}

/// The directory of setup-envtest's downloads. Kubernetes: controller-runtime/tools/setup-envtest/store/helpers.go.
fn setup_envtest_store() -> PathBuf {
    match std::env::consts::OS {
        "macos" => {
            let home = std::env::var_os("HOME").unwrap_or_default();
            Path::new(&home).join("Library/Application Support/io.kubebuilder.envtest")
        }
        _ => data_home().join("kubebuilder-envtest"),
    }
}

/// Where setup-envtest keeps a version, in its directory.
fn setup_envtest_directory(version: &str) -> String {
    let os = match std::env::consts::OS {
        "macos" => "darwin",
        os => os,
    };
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("k8s/{version}-{os}-{architecture}")
}

/// Parses a version that is a name of a directory: `1.31.0`, or `v1.31.0` as other tools write it.
fn parse_version(text: &str) -> Result<String, String> {
    let version = text.strip_prefix('v').unwrap_or(text);
    let mut parts = version.splitn(3, '.');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let are_numbers = [parts.next(), parts.next(), parts.next()]
        .iter()
        .all(|part| part.is_some_and(is_number));
    match are_numbers {
        true => Ok(version.into()),
        false => Err("not a version of the form 1.31.0".into()),
    }
}

/// Links every program in `directory` to `binary`, and returns the absolute path of the directory. Nothing is changed if one
/// of the names is taken.
fn fill(directory: &Path, binary: &Path, force: bool) -> Result<PathBuf, InstallError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::Write { path, source }
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    let directory = directory.canonicalize().map_err(failed(directory))?;
    let links = Program::ALL.map(|program| directory.join(program.name()));
    let is_ours = |link: &Path| {
        let target = std::fs::read_link(link).ok();
        target.is_some_and(|target| target == binary || target.file_name() == binary.file_name())
    };
    let taken = links
        .iter()
        .find(|link| link.symlink_metadata().is_ok() && !is_ours(link) && !force);
    if let Some(taken) = taken {
        return Err(InstallError::Exists(taken.clone()));
    }
    for link in &links {
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(link).map_err(failed(link))?;
        }
        symlink(binary, link).map_err(failed(link))?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_filled_once_and_again() {
        let home = tempfile::tempdir().unwrap();
        let (directory, binary) = (home.path().join("a/b"), home.path().join("mizzen"));
        for _ in 0..2 {
            let filled = fill(&directory, &binary, false).unwrap();
            for name in ["kube-apiserver", "etcd", "kubectl"] {
                assert_eq!(std::fs::read_link(filled.join(name)).unwrap(), binary);
            }
        }
    }

    #[test]
    fn other_programs_are_replaced_only_by_force() {
        let home = tempfile::tempdir().unwrap();
        let binary = home.path().join("mizzen");
        std::fs::write(home.path().join("etcd"), "etcd").unwrap();
        let error = fill(home.path(), &binary, false).unwrap_err().to_string();
        assert!(error.contains("etcd exists and is not a link"), "{error}");
        assert!(!home.path().join("kube-apiserver").exists());
        fill(home.path(), &binary, true).unwrap();
        assert_eq!(
            std::fs::read_link(home.path().join("etcd")).unwrap(),
            binary
        );
    }
}
