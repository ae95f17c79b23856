//! The order in which nodes are tried (upstream: nodeTree): one of each zone in turn, so that a
//! search that stops early has seen all zones.

use mizzen_value::Str;

use super::store::Slot;

/// Nodes by zone, each in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct NodesByZone {
    zones: Vec<(Str, Vec<Slot>)>,
    list: Vec<Slot>,
    is_stale: bool,
}

impl NodesByZone {
    pub(super) fn add(&mut self, zone: &Str, slot: Slot) {
        match self.zones.iter_mut().find(|(known, _)| known == zone) {
            Some((_, nodes)) => nodes.push(slot),
            None => self.zones.push((zone.clone(), vec![slot])),
        }
        self.is_stale = true;
    }

    pub(super) fn remove(&mut self, zone: &Str, slot: Slot) {
        if let Some((_, nodes)) = self.zones.iter_mut().find(|(known, _)| known == zone) {
            nodes.retain(|known| *known != slot);
        }
        self.zones.retain(|(_, nodes)| !nodes.is_empty());
        self.is_stale = true;
    }

    /// Rebuilds the list after changes.
    pub(super) fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        self.list.clear();
        let longest = self
            .zones
            .iter()
            .map(|(_, nodes)| nodes.len())
            .max()
            .unwrap_or_default();
        for at in 0..longest {
            self.list
                .extend(self.zones.iter().filter_map(|(_, nodes)| nodes.get(at)));
        }
    }

    pub(super) fn list(&self) -> &[Slot] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_take_turns() {
        let mut order = NodesByZone::default();
        for (zone, slot) in [("a", 0), ("a", 1), ("b", 2), ("a", 3), ("b", 4)] {
            order.add(&zone.into(), slot);
        }
        order.refresh();
        assert_eq!(order.list(), [0, 2, 1, 4, 3]);
        order.remove(&"b".into(), 2);
        order.refresh();
        assert_eq!(order.list(), [0, 4, 1, 3]);
    }
}
