//! The result of validating a value.

use crate::violation::{Violation, ViolationReason, Violations};

/// The violations, and the number of successful validators: if several alternatives fail, the best
/// match is reported.
#[derive(Debug, Default)]
pub(super) struct ValidationOutcome {
    pub errors: Vec<Violation>,
    pub matches: usize,
}

impl ValidationOutcome {
    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Adds a violation with its message.
    pub(super) fn push(&mut self, reason: ViolationReason, field: String, message: String) {
        self.errors.push(Violation {
            reason,
            field,
            message,
        });
    }

    /// Adds an invalid value, printed by the caller.
    pub(super) fn invalid(&mut self, field: String, shown: &str, detail: &str) {
        self.push(
            ViolationReason::Invalid,
            field,
            format!("Invalid value: {shown}: {detail}"),
        );
    }

    /// Adds the result of another validator of the same value, without duplicates.
    pub(super) fn merge(&mut self, other: ValidationOutcome) {
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
