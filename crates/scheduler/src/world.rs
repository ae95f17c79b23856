//! What does the loop that schedules know?

use mizzen_sdk::{Key, Object};

use crate::HashMap;
use crate::cache::Cache;
use crate::devices::Devices;
use crate::storage::Storage;

/// Everything that decisions rest on.
#[derive(Default)]
pub(crate) struct World {
    pub cache: Cache,
    pub storage: Storage,
    pub devices: Devices,
    /// How many pods may go, by what they are budgeted under.
    pub budgets: HashMap<Key, Object>,
}
