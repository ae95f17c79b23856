//! Kubernetes rules that several components must agree on: scheduler, kubelet, controllers, quota, admission and validation.
//!
//! Each rule has one implementation and one table of cases beside it. This crate has the place of upstream's
//! `k8s.io/component-helpers`: it has no hook of a kind, so that a component that decides about pods and nodes compiles no
//! validation.
//!
//! - [`tolerations`], [`node_affinity`], [`host_ports`]: may a pod run on a node?
//! - [`pod_resources`], [`amounts`], [`resource_names`], [`qos`]: how much does a pod request?
//! - [`quota`]: what does an object use of a ResourceQuota?
//! - [`pod_state`], [`references`]: in which state is a pod, and which objects does it refer to?
//! - [`cron`]: when is a CronJob due?
//!
//! ```
//! use mizzen_component_helpers::pod_resources::{PodResourcesOptions, pod_requests};
//! use mizzen_component_helpers::amounts::Amounts;
//! use mizzen_component_helpers::tolerations::tolerates;
//! use mizzen_value::value;
//!
//! let pod = value!({"spec": {
//!     "containers": [{"resources": {"requests": {"cpu": "100m"}}}],
//!     "initContainers": [{"resources": {"requests": {"cpu": "1"}}}],
//!     "tolerations": [{"key": "gpu", "operator": "Exists"}],
//! }});
//! let requests: Amounts = pod_requests(&pod, &PodResourcesOptions::default());
//! assert_eq!(requests["cpu"].to_string(), "1");
//! let taint = value!({"key": "gpu", "effect": "NoSchedule"});
//! assert!(tolerates(&pod["spec"]["tolerations"][0], &taint));
//! ```

pub mod amounts;
pub mod cron;
pub mod host_ports;
pub mod node_affinity;
pub mod number;
pub mod pod_resources;
pub mod pod_state;
pub mod qos;
pub mod quota;
pub mod references;
pub mod resource_names;
pub mod tolerations;
