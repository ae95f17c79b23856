//! A whole cluster in one thread, on time that passes when everything waits. Kubelets are read over real connections.

mod api;
mod autoscaler;
mod fixtures;
