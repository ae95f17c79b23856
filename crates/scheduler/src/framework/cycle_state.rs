//! What a plugin keeps about one pod between extension points.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::HashMap;

/// What a plugin keeps about one pod during a scheduling cycle (upstream: CycleState).
///
/// Each plugin has a state of its own. PreFilter writes it; the later extension points read it. It
/// is copied, cheaply, when preemption simulates that pods are removed.
///
/// ```
/// use mizzen_scheduler::framework::CycleState;
///
/// struct Tier(&'static str);
///
/// let mut state = CycleState::default();
/// state.write(Tier("gold"));
/// assert_eq!(state.read::<Tier>().unwrap().0, "gold");
/// assert!(state.read::<String>().is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct CycleState(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl CycleState {
    /// Stores a value, in place of an earlier one of its type.
    pub fn write<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of a type.
    pub fn read<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}
