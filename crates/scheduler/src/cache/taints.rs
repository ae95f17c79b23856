//! Interned taint lists. Most nodes have one of a few lists, so a pod's tolerations are compared
//! with lists and not with nodes.

use mizzen_component_helpers::tolerations::Taint;

use crate::HashMap;

/// The taint lists in use. The first is empty.
#[derive(Debug)]
pub(super) struct TaintLists {
    numbers: HashMap<Box<[Taint]>, u32>,
    lists: Vec<Box<[Taint]>>,
    n_nodes: Vec<u32>,
    free: Vec<u32>,
}

impl Default for TaintLists {
    fn default() -> TaintLists {
        let mut lists = TaintLists {
            numbers: HashMap::default(),
            lists: Vec::new(),
            n_nodes: Vec::new(),
            free: Vec::new(),
        };
        lists.acquire(&[]);
        lists
    }
}

impl TaintLists {
    /// The number of a list, for one more node.
    pub(super) fn acquire(&mut self, taints: &[Taint]) -> u32 {
        if let Some(number) = self.numbers.get(taints) {
            self.n_nodes[*number as usize] += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.lists.len() as u32);
        if number as usize == self.lists.len() {
            self.lists.push(Box::default());
            self.n_nodes.push(0);
        }
        self.lists[number as usize] = taints.into();
        self.n_nodes[number as usize] = 1;
        self.numbers.insert(taints.into(), number);
        number
    }

    /// Releases a list for one node.
    pub(super) fn release(&mut self, number: u32) {
        let at = number as usize;
        self.n_nodes[at] -= 1;
        if self.n_nodes[at] == 0 {
            self.numbers.remove(&std::mem::take(&mut self.lists[at]));
            self.free.push(number);
        }
    }

    /// All lists by number.
    pub(super) fn lists(&self) -> &[Box<[Taint]>] {
        &self.lists
    }
}
