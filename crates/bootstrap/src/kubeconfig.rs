//! Writes kubeconfig files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mizzen_value::json;

use crate::pki::{Authority, Signed};

/// A kubeconfig for the owner of `client`. `server_name` is the `tls-server-name`; empty for the address.
pub fn kubeconfig(
    server: &str,
    server_name: &str,
    authority: &Authority,
    user: &str,
    client: &Signed,
) -> String {
    let server_name = match server_name {
        "" => String::new(),
        name => format!("    tls-server-name: {name}\n"),
    };
    let user = json::quote(user);
    let encode = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: mizzen\n  cluster:\n    server: {server}\n{server_name}    certificate-authority-data: {ca}\n\
         users:\n\
         - name: {user}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
         contexts:\n\
         - name: mizzen\n  context:\n    cluster: mizzen\n    user: {user}\n\
         current-context: mizzen\n",
        ca = encode(&authority.certificate),
        certificate = encode(&client.certificate),
        key = encode(&client.key),
    )
}
