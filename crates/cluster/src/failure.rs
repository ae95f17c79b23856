//! The exit codes of commands, and the line about a failure.

use std::process::ExitCode;

use crate::clusters::BusyCluster;
use crate::command::{DetachError, DownError, ImportError, StatusError, UpError};
use crate::log::print_error;
use crate::terminal::{Palette, Tone};

/// The help of the whole command line; docs/command-line.md has the same table.
pub(crate) const EXIT_CODES: &str = "Example:
  mizzen up --detach --set-context
  kubectl create deployment web --image=nginx --replicas=3
  mizzen status
  mizzen down

Exit codes:
  0    success
  1    failure; the message on standard error names the cause
  2    invalid arguments
  3    the cluster does not run or does not exist (status, down)
  4    the cluster runs already (up, apiserver)
  5    the cluster runs, but is not ready (status)
  6    some objects were not imported; each is named on standard error (import)
  130  interrupted by a second Ctrl-C or SIGTERM, or while up --detach waits";

const FAILURE: u8 = 1;
const INVALID_ARGUMENTS: u8 = 2;
const NOT_RUNNING: u8 = 3;
const RUNS_ALREADY: u8 = 4;
const NOT_READY: u8 = 5;
const INCOMPLETE: u8 = 6;
const INTERRUPTED: u8 = 130;

/// An error of a command.
pub(crate) trait CommandError {
    /// The message, with causes. Empty if it is printed already.
    fn message(&self) -> String;

    /// The exit code.
    fn exit_code(&self) -> u8 {
        FAILURE
    }
}

/// Prints the error of a command, and returns the exit code.
pub(crate) fn exit<E: CommandError>(name: &str, outcome: Result<(), E>) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    let message = error.message();
    if !message.is_empty() {
        let command = Palette::stderr().paint(Tone::Bad, &format!("mizzen {name}:"));
        print_error!("{command} {message}");
    }
    error.exit_code().into()
}

impl CommandError for String {
    fn message(&self) -> String {
        self.clone()
    }
}

impl CommandError for UpError {
    fn message(&self) -> String {
        crate::chain(self)
    }

    fn exit_code(&self) -> u8 {
        match self {
            UpError::Nameless => INVALID_ARGUMENTS,
            UpError::Busy(BusyCluster::Runs { .. })
            | UpError::Detach(DetachError::Busy(BusyCluster::Runs { .. })) => RUNS_ALREADY,
            UpError::Detach(DetachError::Ended(code)) => *code,
            UpError::Detach(DetachError::Interrupted) => INTERRUPTED,
            _ => FAILURE,
        }
    }
}

impl CommandError for DownError {
    fn message(&self) -> String {
        crate::chain(self)
    }

    fn exit_code(&self) -> u8 {
        match self {
            DownError::Missing(_) => NOT_RUNNING,
            _ => FAILURE,
        }
    }
}

impl CommandError for StatusError {
    fn message(&self) -> String {
        crate::chain(self)
    }

    fn exit_code(&self) -> u8 {
        match self {
            StatusError::NotRunning { .. } | StatusError::Missing { .. } => NOT_RUNNING,
            StatusError::NotReady { .. } => NOT_READY,
            _ => FAILURE,
        }
    }
}

impl CommandError for ImportError {
    fn message(&self) -> String {
        crate::chain(self)
    }

    fn exit_code(&self) -> u8 {
        match self {
            ImportError::Incomplete { .. } => INCOMPLETE,
            _ => FAILURE,
        }
    }
}
