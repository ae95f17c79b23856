//! Which node? One pod through queue, filter, score, reserve, bind, preempt.
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
//! One loop owns all that is known (`world`) and the pods that wait (`queue`). What happens is told to it as letters
//! (`inbox`); between two letters it takes the next pod, asks the plugins of its profile (`plugin`) on which nodes it may
//! be and which is best (`cycle`), and assumes that it is there. Writing that down (`bind`) is done beside the loop.
//! Where there is no room, pods that matter less are let go (`preempt`).
//!
//! Invariant: nothing here reads the wall clock or draws a number; [`Options`] has the seams.

mod bind;
mod cache;
mod configuration;
mod consult;
mod cycle;
mod devices;
mod extender;
mod happening;
mod inbox;
mod make_room;
mod meter;
mod model;
mod plugin;
mod preempt;
mod profile;
mod queue;
mod report;
mod reserve;
mod run;
mod scheduler;
mod storage;
mod take_in;
mod tell;
mod world;

pub use configuration::{Configuration, ConfigurationError};
pub use run::{Handle, Options, StartError, start};

type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
type HashSet<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
