//! Checks of short texts: names, label keys, ports, addresses.
//!
//! Each function looks at one text and returns what is wrong with it, in upstream's words; nothing if it is valid.
//!
//! Kubernetes: k8s.io/apimachinery/pkg/util/validation.

mod chars;
pub mod ip;
pub mod names;
