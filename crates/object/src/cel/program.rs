//! What can be done with an expression that has no errors?

use super::check::{Checked, Reference};
use super::cost;
use super::estimate::{Range, Sizes};
use super::eval::{self, Activation, Budget, Evaluation};
use super::plan::Planned;
use super::types::Type;

/// An expression, ready to be evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    checked: Checked,
    planned: Planned,
}

impl Program {
    pub(crate) fn new(checked: Checked, planned: Planned) -> Program {
        Program { checked, planned }
    }

    /// The type of its value.
    pub fn result_type(&self) -> &Type {
        self.checked.kind(self.checked.expr.id)
    }

    /// Whether it speaks of a variable. Kubernetes: a variable of a loop that is called so counts as well.
    pub fn refers_to(&self, name: &str) -> bool {
        let mut references = self.checked.references.values();
        references.any(|reference| matches!(reference, Reference::Variable(known) if known == name))
    }

    /// The bounds of what it may cost, given what is known about the sizes of things.
    pub fn estimate(&self, sizes: &dyn Sizes) -> Range {
        cost::estimate(&self.checked, sizes)
    }

    /// Its value with these variables, and what it did cost.
    pub fn evaluate<'a>(&self, activation: &'a dyn Activation, budget: Budget) -> Evaluation<'a> {
        eval::evaluate(&self.planned, activation, budget)
    }
}
