//! Which nodes have an image, and its size (upstream: ImageStateSummary).

use mizzen_value::Str;

use super::store::Slot;
use crate::model::NodeFacts;
use crate::{HashMap, HashSet};

/// An image that nodes have.
#[derive(Debug, Default)]
pub(crate) struct ImageState {
    pub size: i64,
    pub nodes: HashSet<Slot>,
}

/// Images by name.
#[derive(Debug, Default)]
pub(super) struct Images(HashMap<Str, ImageState>);

impl Images {
    pub(super) fn get(&self, name: &str) -> Option<&ImageState> {
        self.0.get(name)
    }

    /// Follows a change of a node's images.
    pub(super) fn change(&mut self, slot: Slot, old: Option<&NodeFacts>, new: Option<&NodeFacts>) {
        for name in old
            .into_iter()
            .flat_map(|facts| &facts.images)
            .flat_map(|image| &image.names)
        {
            let Some(state) = self.0.get_mut(name) else {
                continue;
            };
            state.nodes.remove(&slot);
            if state.nodes.is_empty() {
                self.0.remove(name);
            }
        }
        for image in new.into_iter().flat_map(|facts| &facts.images) {
            for name in &image.names {
                let state = self.0.entry(name.clone()).or_default();
                state.size = image.size;
                state.nodes.insert(slot);
            }
        }
    }
}
