//! Whether privileged containers are allowed.
//!
//! Kubernetes: this is a setting of the process, made once at the start (pkg/capabilities/capabilities.go), because
//! validation is a function of the object alone.

use std::sync::atomic::{AtomicBool, Ordering};

static ALLOWS_PRIVILEGED: AtomicBool = AtomicBool::new(true);

/// Rejects privileged containers from now on, for every server of the process.
pub fn disallow_privileged() {
    ALLOWS_PRIVILEGED.store(false, Ordering::Relaxed);
}

/// Whether containers may be privileged.
pub(super) fn allows_privileged() -> bool {
    ALLOWS_PRIVILEGED.load(Ordering::Relaxed)
}
