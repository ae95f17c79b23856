//! Which nodes are near each other? Those that have the same value of a label.
//!
//! For each label that somebody asks for, values have small numbers, so that pods are counted by number and not by text.

use mizzen_value::Str;

use super::store::Slot;
use crate::HashMap;
use crate::model::Labels;

/// The number of nodes that do not have the label.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The values of one label.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    numbers: HashMap<Str, u32>,
    /// How many nodes have the value of a number.
    n_nodes: Vec<u32>,
    free: Vec<u32>,
    /// The number of each node's value.
    of: Vec<u32>,
}

impl Domains {
    /// The number of a node's value.
    pub(crate) fn of(&self, slot: Slot) -> u32 {
        self.of.get(slot as usize).copied().unwrap_or(NOWHERE)
    }

    /// All numbers are less than this.
    pub(crate) fn bound(&self) -> usize {
        self.n_nodes.len()
    }

    /// Gives a node's value a number.
    fn set(&mut self, slot: Slot, value: Option<&str>) {
        let at = slot as usize;
        if value.is_none() && at >= self.of.len() {
            return;
        }
        if at >= self.of.len() {
            self.of.resize(at + 1, NOWHERE);
        }
        let old = self.of[at];
        let new = value.map_or(NOWHERE, |value| self.number(value));
        self.of[at] = new;
        self.leave(old);
    }

    fn number(&mut self, value: &str) -> u32 {
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

    fn leave(&mut self, number: u32) {
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

/// The labels that somebody asked for.
#[derive(Debug, Default)]
pub(super) struct Topologies {
    labels: HashMap<Str, usize>,
    domains: Vec<Domains>,
}

impl Topologies {
    /// The place of a label; `nodes` are looked at when it is first asked for.
    pub(super) fn place<'a>(
        &mut self,
        label: &Str,
        nodes: impl Iterator<Item = (Slot, &'a Labels)>,
    ) -> usize {
        if let Some(at) = self.labels.get(label) {
            return *at;
        }
        let mut domains = Domains::default();
        for (slot, labels) in nodes {
            domains.set(slot, labels.get(label));
        }
        self.domains.push(domains);
        self.labels.insert(label.clone(), self.domains.len() - 1);
        self.domains.len() - 1
    }

    pub(super) fn at(&self, place: usize) -> &Domains {
        &self.domains[place]
    }

    /// Follows a change of a node's labels.
    pub(super) fn set(&mut self, slot: Slot, labels: Option<&Labels>) {
        for (label, at) in &self.labels {
            self.domains[*at].set(slot, labels.and_then(|labels| labels.get(label)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[test]
    fn equal_values_have_one_number_and_numbers_are_used_again() {
        let labels = |zone: &str| Labels::of(&object(&format!(r#"{{"zone":"{zone}"}}"#)));
        let (a, b) = (labels("a"), labels("b"));
        let mut topologies = Topologies::default();
        let place = topologies.place(&"zone".into(), [(0, &a), (1, &a), (2, &b)].into_iter());
        let of = |topologies: &Topologies, slot| topologies.at(place).of(slot);
        assert_eq!(of(&topologies, 0), of(&topologies, 1));
        assert_ne!(of(&topologies, 0), of(&topologies, 2));
        topologies.set(2, None);
        assert_eq!(of(&topologies, 2), NOWHERE);
        topologies.set(3, Some(&labels("c")));
        assert_eq!(topologies.at(place).bound(), 2);
    }
}
