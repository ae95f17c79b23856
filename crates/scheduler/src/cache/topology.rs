//! Topology domains: the nodes with the same value of a label.
//!
//! For each topology key in use, the label's values have small numbers, so pods are counted by
//! number and not by text.

use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::Labels;

/// The domain of nodes that lack the label.
pub(crate) const NO_DOMAIN: u32 = u32::MAX;

/// The values of one topology key.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    numbers: HashMap<Str, u32>,
    /// The number of nodes with each value.
    n_nodes: Vec<u32>,
    free: Vec<u32>,
    /// The domain of each node, by slot.
    by_slot: Vec<u32>,
}

impl Domains {
    /// The domain of a node.
    pub(crate) fn domain_of(&self, slot: Slot) -> u32 {
        self.by_slot
            .get(slot as usize)
            .copied()
            .unwrap_or(NO_DOMAIN)
    }

    /// All domains are less than this.
    pub(crate) fn n_domains(&self) -> usize {
        self.n_nodes.len()
    }

    /// Sets a node's value.
    fn set_value(&mut self, slot: Slot, value: Option<&str>) {
        let at = slot as usize;
        if value.is_none() && at >= self.by_slot.len() {
            return;
        }
        if at >= self.by_slot.len() {
            self.by_slot.resize(at + 1, NO_DOMAIN);
        }
        let old = self.by_slot[at];
        let new = value.map_or(NO_DOMAIN, |value| self.acquire(value));
        self.by_slot[at] = new;
        self.release(old);
    }

    fn acquire(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            self.n_nodes[*number as usize] += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.n_nodes.len() as u32);
        if number as usize == self.n_nodes.len() {
            self.n_nodes.push(0);
        }
        self.n_nodes[number as usize] = 1;
        self.numbers.insert(value.into(), number);
        number
    }

    fn release(&mut self, number: u32) {
        let Some(count) = self.n_nodes.get_mut(number as usize) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.numbers.retain(|_, known| *known != number);
            self.free.push(number);
        }
    }
}

/// The topology keys in use.
#[derive(Debug, Default)]
pub(super) struct Topologies {
    labels: HashMap<Str, usize>,
    domains: Vec<Domains>,
}

impl Topologies {
    /// The index of a topology key. `nodes` are read if it is new.
    pub(super) fn index_of<'a>(
        &mut self,
        label: &Str,
        nodes: impl Iterator<Item = (Slot, &'a Labels)>,
    ) -> usize {
        if let Some(at) = self.labels.get(label) {
            return *at;
        }
        let mut domains = Domains::default();
        for (slot, labels) in nodes {
            domains.set_value(slot, labels.get(label));
        }
        self.domains.push(domains);
        self.labels.insert(label.clone(), self.domains.len() - 1);
        self.domains.len() - 1
    }

    pub(super) fn at(&self, place: usize) -> &Domains {
        &self.domains[place]
    }

    /// Follows a change of a node's labels.
    pub(super) fn set_labels(&mut self, slot: Slot, labels: Option<&Labels>) {
        for (label, at) in &self.labels {
            self.domains[*at].set_value(slot, labels.and_then(|labels| labels.get(label)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[test]
    fn equal_values_have_one_number_and_numbers_are_used_again() {
        let labels = |zone: &str| Labels::from_value(&object(&format!(r#"{{"zone":"{zone}"}}"#)));
        let (a, b) = (labels("a"), labels("b"));
        let mut topologies = Topologies::default();
        let place = topologies.index_of(&"zone".into(), [(0, &a), (1, &a), (2, &b)].into_iter());
        let of = |topologies: &Topologies, slot| topologies.at(place).domain_of(slot);
        assert_eq!(of(&topologies, 0), of(&topologies, 1));
        assert_ne!(of(&topologies, 0), of(&topologies, 2));
        topologies.set_labels(2, None);
        assert_eq!(of(&topologies, 2), NO_DOMAIN);
        topologies.set_labels(3, Some(&labels("c")));
        assert_eq!(topologies.at(place).n_domains(), 2);
    }
}
