//! How much of what? Whole numbers: thousandths of a CPU, bytes, pieces.

use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

/// Amounts of the resources that nodes have and pods ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral: i64,
    /// Everything else that is counted, by name.
    pub scalar: Vec<(Str, i64)>,
}

impl Resources {
    /// Reads a list of quantities; what nobody schedules by is left out.
    pub(crate) fn of(list: &Value) -> Resources {
        let mut resources = Resources::default();
        for (name, quantity) in list.entries() {
            resources.add_one(name, amount(name, quantity));
        }
        resources
    }

    /// How much there is of one.
    pub(crate) fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            _ => self.scalar(name),
        }
    }

    /// How much there is of one that is neither CPU nor bytes.
    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalar
            .iter()
            .find(|(known, _)| known == name)
            .map_or(0, |(_, amount)| *amount)
    }

    /// Sets one of them.
    pub(crate) fn set(&mut self, name: &str, amount: i64) {
        let known = self.get(name);
        self.add_one(name, amount - known);
    }

    fn add_one(&mut self, name: &str, amount: i64) {
        match name {
            "cpu" => self.cpu += amount,
            "memory" => self.memory += amount,
            "ephemeral-storage" => self.ephemeral += amount,
            _ if is_scalar(name) => self.add_scalar(name, amount),
            _ => {}
        }
    }

    fn add_scalar(&mut self, name: &str, amount: i64) {
        match self.scalar.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known += amount,
            None => self.scalar.push((name.into(), amount)),
        }
    }

    /// Adds all of `other`, so many times.
    pub(crate) fn add(&mut self, other: &Resources, times: i64) {
        self.cpu += other.cpu * times;
        self.memory += other.memory * times;
        self.ephemeral += other.ephemeral * times;
        for (name, amount) in &other.scalar {
            self.add_scalar(name, amount * times);
        }
    }

    /// Makes each at least as much as in `other`.
    pub(crate) fn raise_to(&mut self, other: &Resources) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.scalar {
            let known = self.scalar(name);
            self.add_scalar(name, amount.max(&known) - known);
        }
    }

    /// Whether any of them is less in `other`.
    pub(crate) fn shrinks_to(&self, other: &Resources) -> bool {
        self.cpu > other.cpu
            || self.memory > other.memory
            || self.ephemeral > other.ephemeral
            || self
                .scalar
                .iter()
                .any(|(name, amount)| *amount > other.scalar(name))
    }
}

/// A quantity in the unit in which its resource is counted.
pub(crate) fn amount(name: &str, quantity: &Value) -> i64 {
    let quantity = Quantity::of(quantity.str());
    if name == "cpu" {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// Whether a resource other than CPU, memory and storage is counted.
pub(crate) fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}
