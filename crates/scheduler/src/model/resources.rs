//! Amounts of resources as whole numbers: millicores, bytes, pieces.

use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};

/// Amounts of the resources that nodes have and pods request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceAmounts {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral: i64,
    /// Extended and other scalar resources, by name.
    pub scalar: Vec<(Str, i64)>,
}

impl ResourceAmounts {
    /// Parses a resource list. Resources that are not scheduled by are left out.
    pub(crate) fn from_list(list: &Value) -> ResourceAmounts {
        let mut resources = ResourceAmounts::default();
        for (name, quantity) in list.entries() {
            resources.add_one(name, quantity_amount(name, quantity));
        }
        resources
    }

    /// The amount of one resource.
    pub(crate) fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            _ => self.scalar(name),
        }
    }

    /// The amount of one scalar resource.
    pub(crate) fn scalar(&self, name: &str) -> i64 {
        self.scalar
            .iter()
            .find(|(known, _)| known == name)
            .map_or(0, |(_, amount)| *amount)
    }

    /// Sets the amount of one resource.
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

    /// Adds all of `other`, times `times`.
    pub(crate) fn add(&mut self, other: &ResourceAmounts, times: i64) {
        self.cpu += other.cpu * times;
        self.memory += other.memory * times;
        self.ephemeral += other.ephemeral * times;
        for (name, amount) in &other.scalar {
            self.add_scalar(name, amount * times);
        }
    }

    /// Raises each amount to at least that of `other`.
    pub(crate) fn raise_to(&mut self, other: &ResourceAmounts) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.scalar {
            let known = self.scalar(name);
            self.add_scalar(name, amount.max(&known) - known);
        }
    }

    /// Whether any amount is less in `other`.
    pub(crate) fn shrinks_to(&self, other: &ResourceAmounts) -> bool {
        self.cpu > other.cpu
            || self.memory > other.memory
            || self.ephemeral > other.ephemeral
            || self
                .scalar
                .iter()
                .any(|(name, amount)| *amount > other.scalar(name))
    }
}

/// A quantity in the unit of its resource.
pub(crate) fn quantity_amount(name: &str, quantity: &Value) -> i64 {
    let quantity = Quantity::parse_or_zero(quantity.str());
    if name == "cpu" {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// Whether a resource other than CPU, memory and storage is scheduled by.
pub(crate) fn is_scalar(name: &str) -> bool {
    name.contains('/') || name.starts_with("hugepages-") || name.starts_with("attachable-volumes-")
}
