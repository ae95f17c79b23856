//! What a check of one schema found.

use crate::violation::{Reason, Violation, Violations};

/// What is wrong, and how much was right: of several alternatives that all fail, the one that came closest is
/// reported.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub errors: Vec<Violation>,
    pub matches: usize,
}

impl Outcome {
    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Something is wrong that only words can say.
    pub(super) fn push(&mut self, reason: Reason, field: String, message: String) {
        self.errors.push(Violation {
            reason,
            field,
            message,
        });
    }

    /// A field has a wrong value, shown as given.
    pub(super) fn invalid(&mut self, field: String, shown: &str, detail: &str) {
        self.push(
            Reason::Invalid,
            field,
            format!("Invalid value: {shown}: {detail}"),
        );
    }

    /// Takes over what another check of the same value found. What is there already is not said twice.
    pub(super) fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        for error in other.errors {
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        }
    }

    pub(super) fn report(self, violations: &mut Violations) {
        violations.0.extend(self.errors);
    }
}
