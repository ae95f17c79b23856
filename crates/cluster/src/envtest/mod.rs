//! The programs that envtest starts: `kube-apiserver`, `etcd` and `kubectl`. This binary is each of them if it is started
//! under that name, so that `KUBEBUILDER_ASSETS` can be a directory of links to it.
//!
//! | module | content |
//! |---|---|
//! | `install` | `mizzen envtest install`: the directory of links |
//! | `kube_apiserver` | `kube-apiserver`: the API server, and components that `MIZZEN_ENVTEST_LOOPS` names |
//! | `etcd` | `etcd`: a data directory and its health. It stores nothing itself |
//! | `storage_location` | how the API server learns the data directory from `--etcd-servers` |
//! | `loops` | the components of `MIZZEN_ENVTEST_LOOPS` and `mizzen apiserver --loops` |
//! | `kubectl` | `kubectl`: the one on the PATH |
//!
//! Kubernetes: sigs.k8s.io/controller-runtime/pkg/internal/testing starts them with `--flag=value`, Java's kube-api-test
//! with `--flag value` and `-flag value`.

mod etcd;
mod install;
mod kube_apiserver;
mod kubectl;
mod loops;
mod storage_location;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use install::Envtest;
pub(crate) use loops::Loops;
pub(crate) use storage_location::StorageLocation;

/// A program that envtest starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    KubeApiserver,
    Etcd,
    Kubectl,
}

impl Program {
    const ALL: [Program; 3] = [Program::KubeApiserver, Program::Etcd, Program::Kubectl];

    /// Its name, and the name of its link.
    fn name(self) -> &'static str {
        match self {
            Program::KubeApiserver => "kube-apiserver",
            Program::Etcd => "etcd",
            Program::Kubectl => "kubectl",
        }
    }

    /// The program under whose name this process was started.
    pub(crate) fn of_this_process() -> Option<Program> {
        let command = std::env::args_os().next()?;
        let name = Path::new(&command).file_name()?.to_str()?;
        Program::ALL
            .into_iter()
            .find(|program| program.name() == name)
    }

    /// Runs it with the arguments of the process.
    pub(crate) fn run(self) -> ExitCode {
        let arguments = std::env::args_os().skip(1);
        let outcome = match self {
            Program::KubeApiserver => kube_apiserver::run(arguments.map(normalize)),
            Program::Etcd => etcd::run(arguments.map(normalize)),
            Program::Kubectl => kubectl::run(arguments),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                crate::log::print_error!("{}: {error}", self.name());
                ExitCode::FAILURE
            }
        }
    }
}

/// A flag as Go's flag packages read it: one dash is as good as two, and underscores in its name are dashes.
fn normalize(argument: OsString) -> OsString {
    let Some(text) = argument.to_str() else {
        return argument;
    };
    let flag = text.trim_start_matches('-');
    let n_dashes = text.len() - flag.len();
    // `-v` and `-h` are short flags.
    if !(1..=2).contains(&n_dashes) || flag.is_empty() || n_dashes == 1 && is_short(flag) {
        return argument;
    }
    match flag.split_once('=') {
        Some((name, value)) => format!("--{}={value}", name.replace('_', "-")).into(),
        None => format!("--{}", flag.replace('_', "-")).into(),
    }
}

/// Whether a flag after one dash has one letter, with or without a value: `v`, `v2`, `v=2`.
fn is_short(flag: &str) -> bool {
    let mut letters = flag.chars().skip(1);
    letters
        .next()
        .is_none_or(|next| next == '=' || next.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_in_go() {
        let cases = [
            ("--cert-dir=/a_b", "--cert-dir=/a_b"),
            ("--cert_dir=/a_b", "--cert-dir=/a_b"),
            ("-data-dir", "--data-dir"),
            ("-wal-dir=/x-y", "--wal-dir=/x-y"),
            ("-v", "-v"),
            ("-v=2", "-v=2"),
            ("-v4", "-v4"),
            ("/tmp/a_b", "/tmp/a_b"),
            ("--", "--"),
        ];
        for (given, expected) in cases {
            assert_eq!(normalize(given.into()), OsString::from(expected));
        }
    }
}
