//! The state that scheduling decisions depend on.

use mizzen_sdk::{Key, Object};

use crate::HashMap;
use crate::cache::SchedulerCache;
use crate::devices::Devices;
use crate::storage::StorageState;

/// The objects that the scheduler watches, and what it assumes of them.
#[derive(Default)]
pub(crate) struct ClusterState {
    pub cache: SchedulerCache,
    pub storage: StorageState,
    pub devices: Devices,
    /// PodDisruptionBudgets.
    pub budgets: HashMap<Key, Object>,
}
