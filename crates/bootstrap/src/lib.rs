//! What a control plane starts with, besides its API server and its loops: bootstrap objects, certificate authorities,
//! keys of tokens, and the users of its components.
//!
//! `cluster` and `testing` compose a control plane of it; nothing here parses flags or opens ports.
//!
//! ```
//! use mizzen_bootstrap::kubeconfig::kubeconfig;
//! use mizzen_bootstrap::pki::{Authority, PkiError};
//!
//! let authority = Authority::in_memory()?;
//! let jane = authority.sign_client("jane", "", &["developers"])?;
//! let text = kubeconfig("https://127.0.0.1:6443", "", &authority, "jane", &jane);
//! assert!(text.contains("client-certificate-data: "));
//! # Ok::<(), PkiError>(())
//! ```
//!
//! | part | what it has |
//! |---|---|
//! | [`objects`] | system namespaces, roles, priority classes, flow schemas, the `kubernetes` Service |
//! | [`users`] | the users as which controllers, scheduler and nodes call the API server |
//! | [`pki`] | certificate authorities and the certificates that they sign |
//! | [`token_key`] | the keys of service account tokens |
//! | [`token_tracking`] | the ConfigMap that says since when uses of legacy tokens are tracked |
//! | [`kubeconfig`] | kubeconfig files |
//! | [`loopback_client`] | the API server as a client of its own API |

pub mod kubeconfig;
pub mod loopback_client;
pub mod objects;
pub mod pki;
pub mod token_key;
pub mod token_tracking;
pub mod users;
