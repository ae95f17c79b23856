//! `kubectl` in the directory of envtest: the next one on the PATH.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Replaces this process by kubectl.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), String> {
    let Some(kubectl) = find() else {
        return Err(
            "there is no kubectl on the PATH besides this link to mizzen; install one".into(),
        );
    };
    let error = Command::new(&kubectl).args(arguments).exec();
    Err(format!("cannot run {}: {error}", kubectl.display()))
}

/// The first kubectl on the PATH that is not this binary.
pub(super) fn find() -> Option<PathBuf> {
    let this = env::current_exe().ok()?.canonicalize().ok()?;
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|directory| directory.join("kubectl"))
        .find(|file| file.canonicalize().is_ok_and(|found| found != this))
}
