//! Validation of names, label keys, ports and addresses.
//!
//! Each function validates one string and returns upstream's messages; none if it is valid.
//!
//! Kubernetes: k8s.io/apimachinery/pkg/util/validation.

mod chars;
pub mod ip;
pub mod names;
