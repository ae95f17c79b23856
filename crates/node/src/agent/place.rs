//! What is known of each node: what is left of it, and which addresses its pods have.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::informer::Informer;
use mizzen_sdk::{Key, Object};
use mizzen_value::Str;

use crate::address::Pool;
use crate::admit::{Share, Used};
use crate::nodes;
use crate::settings::Settings;

/// The nodes of this process.
pub(super) struct Places {
    settings: Arc<Settings>,
    nodes: Informer<Object>,
    places: HashMap<Str, Place>,
    /// Addresses for pods whose node has no range of its own.
    own: Pool,
}

#[derive(Default)]
struct Place {
    used: Used,
    pool: Option<Pool>,
}

/// A node, and what is taken of it.
pub(super) struct Seen<'a> {
    pub object: Arc<Object>,
    pub used: &'a Used,
}

impl Places {
    pub(super) fn new(settings: &Arc<Settings>, nodes: Informer<Object>) -> Places {
        let places = settings
            .names()
            .map(|name| (name, Place::default()))
            .collect();
        Places {
            settings: settings.clone(),
            nodes,
            places,
            own: Pool::own(&settings.prefix),
        }
    }

    /// Whether there is such a node here.
    pub(super) fn has(&self, node: &str) -> bool {
        self.places.contains_key(node)
    }

    /// A node that is here; as it was registered, if the API has not told of it yet.
    pub(super) fn node(&self, name: &str) -> Seen<'_> {
        let object = self
            .object(name)
            .unwrap_or_else(|| Arc::new(Object(nodes::object(&self.settings, name))));
        Seen {
            object,
            used: &self.places[name].used,
        }
    }

    fn object(&self, name: &str) -> Option<Arc<Object>> {
        self.nodes
            .lister()
            .by_key(&Key::cluster(name))
            .ok()
            .flatten()
    }

    /// A pod takes its share of a node.
    pub(super) fn take(&mut self, node: &str, share: &Share) {
        if let Some(place) = self.places.get_mut(node) {
            place.used.add(share);
        }
    }

    /// A pod gives its share of a node back.
    pub(super) fn release(&mut self, node: &str, share: &Share) {
        if let Some(place) = self.places.get_mut(node) {
            place.used.remove(share);
        }
    }

    /// The address that a pod has or gets; empty for one that uses its node's.
    pub(super) fn address(&mut self, pod: &Object, known: &str) -> Str {
        if pod["spec"]["hostNetwork"].bool() {
            return Str::default();
        }
        let name = pod["spec"]["nodeName"].str();
        let range = self
            .object(name)
            .map(|node| node["spec"]["podCIDR"].str().to_string());
        let Some(place) = self.places.get_mut(name) else {
            return Str::default();
        };
        if place.pool.is_none() {
            place.pool = range.and_then(|range| Pool::of_range(&range));
        }
        let pool = place.pool.as_mut().unwrap_or(&mut self.own);
        if known.is_empty() {
            return pool.take().unwrap_or_default();
        }
        if !pool.keep(known) {
            self.own.keep(known);
        }
        known.into()
    }

    /// A pod gives its address back.
    pub(super) fn free(&mut self, node: &str, address: &str) {
        if let Some(pool) = self
            .places
            .get_mut(node)
            .and_then(|place| place.pool.as_mut())
        {
            pool.free(address);
        }
        self.own.free(address);
    }
}
