//! The scheduler: one pod through queue, filter, score, reserve, bind, preemption.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), mizzen_scheduler::StartError> {
//! use mizzen_scheduler::{Options, start};
//!
//! let scheduler = start(Options::new(client))?;
//! scheduler.synced().await;
//! println!("{}", mizzen_sdk::metrics::Families::of(&[&scheduler]));
//! # Ok(())
//! # }
//! ```
//!
//! One loop owns the cluster state (`cluster_state`) and the scheduling queue (`queue`). Informer
//! events reach it as messages (`events`, `event_handlers`). Between two messages it pops the next
//! pod, runs the plugins of its profile (`plugin`) to filter and score nodes (`cycle`), and assumes
//! the pod on the selected node. The binding cycle (`bind`) runs beside the loop. If no node fits,
//! PostFilter (`post_filter`) preempts pods of lower priority (`preemption`).
//!
//! Invariant: nothing here reads the wall clock or a random source; [`Options`] has both.

mod bind;
mod cache;
mod cluster_event;
mod cluster_state;
mod configuration;
mod cycle;
mod devices;
mod event_handlers;
mod event_recorder;
mod events;
mod extender;
mod extender_phases;
pub mod framework;
mod framework_metrics;
mod metrics;
mod model;
mod plugin;
mod pod_status;
mod post_filter;
mod preemption;
mod profile;
mod queue;
mod reserve;
mod resource_metrics;
mod run;
mod scheduler;
mod storage;

pub use configuration::{Configuration, ConfigurationError};
pub use resource_metrics::PodResourceMetrics;
pub use run::{Handle, Options, StartError, start};

type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
type HashSet<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
