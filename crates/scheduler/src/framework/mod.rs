//! The scheduling framework: plugins of your own.
//!
//! A plugin is a type that implements some of the extension points: [`PreFilter`], [`Filter`],
//! [`PostFilter`], [`Score`], [`Reserve`], [`Permit`] and [`PreBind`]. A [`Registry`] knows how to
//! create plugins; a `KubeSchedulerConfiguration` enables them by name, beside those in tree.
//!
//! ```
//! use mizzen_scheduler::Configuration;
//! use mizzen_scheduler::framework::{
//!     CycleState, Filter, Node, Plugin, Pod, Registry, Rejection, Score,
//! };
//!
//! /// Keeps pods on nodes of their tier, and prefers nodes with few pods.
//! struct Tiers;
//!
//! impl Filter for Tiers {
//!     fn filter(&self, _: &CycleState, pod: Pod, node: Node) -> Result<(), Rejection> {
//!         match (pod.label("tier"), node.label("tier")) {
//!             (Some(wanted), has) if has != Some(wanted) => {
//!                 Err(Rejection::unresolvable("node(s) were in another tier"))
//!             }
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! impl Score for Tiers {
//!     fn score(&self, _: &CycleState, _: Pod, node: Node) -> i64 {
//!         100 - node.pods().count().min(100) as i64
//!     }
//! }
//!
//! let registry = Registry::new().with("Tiers", |_| Ok(Plugin::new(Tiers).filter().score().build()))?;
//! let configuration = Configuration::parse_with(
//!     b"apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - plugins: {multiPoint: {enabled: [{name: Tiers, weight: 5}]}}",
//!     &registry,
//! )?;
//! # let _ = configuration;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An extension point that the type does not implement does not compile: `Plugin::new(Tiers).permit()`.
//! `Options::configuration` takes the configuration; `examples/scheduler-plugin` is a whole program.
//!
//! Filter and Score run in the scheduling loop and must not block. PreBind runs in the binding cycle,
//! which is a task per pod, and may wait.

mod adapter;
mod cycle_state;
mod extension_points;
mod plugin;
mod registry;
mod view;
mod waiting_pods;

pub use cycle_state::CycleState;
pub use extension_points::{
    Filter, NodeScore, Permission, Permit, PostFilter, PreBind, PreFilter, PreFilterResult,
    Rejection, Reserve, Score,
};
pub use plugin::{Plugin, PluginBuilder};
pub use registry::{PluginArgs, Registry, RegistryError};
pub use view::{ClusterEvent, EventResource, Node, Nodes, Pod};
pub use waiting_pods::{WaitingPod, WaitingPods};

pub(crate) use adapter::{CustomFilter, CustomPlugin, ReservedPlugins};
pub(crate) use waiting_pods::{MAX_WAIT, PermitFailure, PermitWait};

/// The error of a plugin.
///
/// ```
/// use mizzen_scheduler::framework::BoxError;
///
/// /// `?` turns any error into this one.
/// fn percent(text: &str) -> Result<u8, BoxError> {
///     match text.parse()? {
///         percent @ 0..=100 => Ok(percent),
///         _ => Err("more than 100 percent".into()),
///     }
/// }
///
/// assert_eq!(percent("70").unwrap(), 70);
/// assert_eq!(percent("170").unwrap_err().to_string(), "more than 100 percent");
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
