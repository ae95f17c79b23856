//! The identity of this API server in the label `apiserver_id_hash`.

use std::sync::OnceLock;

use crate::hash;

static ID_HASH: OnceLock<String> = OnceLock::new();

/// Sets the identity of this process, once. Kubernetes: the name of its identity lease,
/// `apiserver-` and a hash of the host name.
pub fn set_api_server_id(id: &str) {
    let _ = ID_HASH.set(hash(id.as_bytes()));
}

/// The hash of the identity; empty if there is none.
pub fn api_server_id_hash() -> &'static str {
    ID_HASH.get().map_or("", String::as_str)
}
