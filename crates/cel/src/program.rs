//! A compiled expression.

use super::ast::{Expr, ExprKind, Literal};
use super::checker::{Checked, ReferenceInfo};
use super::cost_estimator;
use super::estimate::{CostRange, SizeEstimator};
use super::interpreter::{self, Activation, EvalLimits, EvalResult};
use super::planner::Planned;
use super::types::Type;

/// A compiled expression, ready to be evaluated any number of times.
#[derive(Debug)]
pub struct Program {
    checked: Checked,
    planned: Planned,
}

impl Program {
    pub(crate) fn new(checked: Checked, planned: Planned) -> Program {
        Program { checked, planned }
    }

    /// The type of the expression.
    pub fn result_type(&self) -> &Type {
        self.checked.kind(self.checked.expr.id)
    }

    /// Whether it refers to a variable. Kubernetes: a comprehension variable of the same name
    /// counts, too.
    pub fn refers_to(&self, name: &str) -> bool {
        let mut references = self.checked.references.values();
        references
            .any(|reference| matches!(reference, ReferenceInfo::Variable(known) if known == name))
    }

    /// Whether it selects a field of a variable: `variable.field`, `has(variable.field)` or
    /// `variable.?field`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        selects(&self.checked.expr, variable, field)
    }

    /// The bounds of its cost, given the sizes of the input.
    pub fn estimate(&self, sizes: &dyn SizeEstimator) -> CostRange {
        cost_estimator::estimate(&self.checked, sizes)
    }

    /// Evaluates the expression with these variables.
    pub fn evaluate<'a>(
        &self,
        activation: &'a dyn Activation,
        budget: EvalLimits,
    ) -> EvalResult<'a> {
        interpreter::evaluate(&self.planned, activation, budget)
    }
}

fn selects(expr: &Expr, variable: &str, field: &str) -> bool {
    let is_variable = |operand: &Expr| operand.as_ident().is_some_and(|name| name == variable);
    let here = match &expr.kind {
        ExprKind::Select(select) => is_variable(&select.operand) && select.field == field,
        ExprKind::Call(call) if call.function == "_?._" => match &call.arguments[..] {
            [operand, name] => {
                let named =
                    |literal: &Literal| matches!(literal, Literal::String(text) if text == field);
                is_variable(operand) && name.as_literal().is_some_and(named)
            }
            _ => false,
        },
        _ => false,
    };
    here || expr
        .children()
        .into_iter()
        .any(|child| selects(child, variable, field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Environment;
    use crate::tests::LATEST;

    #[track_caller]
    fn check(text: &str, expected: bool) {
        let environment =
            Environment::new(LATEST).with_variable("claims", Type::map(Type::String, Type::Dyn));
        assert_eq!(
            environment
                .compile(text)
                .expect("sound")
                .selects("claims", "email"),
            expected,
            "{text}"
        );
    }

    #[test]
    fn a_field_is_selected_in_several_ways() {
        check("claims.email", true);
        check("'a' + claims.email.split('@')[0]", true);
        check("has(claims.email) ? 'a' : 'b'", true);
        check("claims.?email.orValue('')", true);
        check("[1].map(x, claims.email)", true);
        check("{'a': claims.email}.a", true);
        check("claims.mail", false);
        check("claims.sub.email", false);
        check("'claims.email'", false);
    }
}
