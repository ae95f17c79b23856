//! PersistentVolumes that are directories of this machine: `local` and `hostPath`.
//!
//! A link in the directory of the pod leads to the volume. So containers that start after a restart
//! of the agent find it, and nothing must be unmounted.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use mizzen_value::Value;

use super::{AtPath as _, MountError, host_path, ownership};
use crate::pod::claims::ClaimedVolume;

/// Makes the link to the directory of a volume, which must be there.
pub(super) fn set_up(pod: &Value, link: &Path, claimed: &ClaimedVolume) -> Result<(), MountError> {
    let source = &claimed.source;
    let path = match (&source["local"], &source["hostPath"]) {
        (Value::Null, Value::Null) => return Err(unsupported(source)),
        (Value::Null, host) => {
            let path = Path::new(host["path"].str());
            host_path::check(path, host["type"].str())?;
            path
        }
        (local, _) => Path::new(local["path"].str()),
    };
    if fs::read_link(link).is_ok_and(|known| known == path) {
        return Ok(());
    }
    if !source["local"].is_null() {
        set_up_local(pod, path, claimed)?;
    }
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).at(parent)?;
    }
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).at(link),
        _ => {}
    }
    symlink(path, link).at(link)
}

/// Kubernetes: only a directory or a block device, and only `local` follows `fsGroup`
/// (pkg/volume/local/local.go).
fn set_up_local(pod: &Value, path: &Path, claimed: &ClaimedVolume) -> Result<(), MountError> {
    if !claimed.allows_node {
        return Err(MountError::NodeAffinity);
    }
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::NoPath(path.into()));
        }
        found => found.at(path)?,
    };
    if !found.is_dir() {
        return Err(MountError::NotDirectory);
    }
    match claimed.is_read_only {
        true => Ok(()),
        false => ownership::apply(pod, path).at(path),
    }
}

/// Kubernetes: the message about a driver that has not registered, or a volume without plug-in
/// (pkg/volume/csi/csi_attacher.go, pkg/volume/plugins.go).
fn unsupported(source: &Value) -> MountError {
    match &source["csi"]["driver"] {
        Value::Null => MountError::NoPlugin,
        driver => MountError::NoDriver(driver.str().into()),
    }
}
