//! The client against a real containerd, and against servers that are none.

mod containerd;
mod runtime;
mod version;
