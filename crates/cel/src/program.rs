//! What can be done with an expression that has no errors?

use super::ast::{Expr, ExprKind, Literal};
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

    /// Whether it looks at a field of a variable, in whatever way: `variable.field`, `has(variable.field)`,
    /// `variable.?field`.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        selects(&self.checked.expr, variable, field)
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
