//! Files with keys: no other user may own them, because an owner can replace them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::unistd::{Uid, User};

/// Rejects a file or directory that is owned neither by the user of this process nor by root.
pub fn check_owner(path: &Path) -> io::Result<()> {
    let (owner, user) = (Uid::from_raw(fs::metadata(path)?.uid()), Uid::effective());
    if owner == user || owner.is_root() {
        return Ok(());
    }
    let why = format!("owned by {}, not by {}", named(owner), named(user));
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// A user as `name (uid 7)`.
fn named(uid: Uid) -> String {
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{} (uid {uid})", user.name),
        _ => format!("uid {uid}"),
    }
}
