//! Static checks of rules, for the author of a definition.

use super::compile::{Compiled, CompiledRule};
use super::declare::{DeclaredNode, cardinality};
use crate::structural::node::SchemaNode;
use mizzen_cel::Program;
use mizzen_value::Value;

/// The result of the static checks of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleVerdict {
    /// The compile error of the rule.
    pub error: Option<String>,
    /// The compile error of its `messageExpression`.
    pub message_error: Option<String>,
    /// The maximum estimated cost.
    pub cost: u64,
    /// The maximum estimated cost of its `messageExpression`, if it has one.
    pub message_cost: Option<u64>,
    /// The maximum number of occurrences of the value in an object, if nothing around it bounds it.
    pub cardinality: u64,
    /// Whether it refers to `oldSelf`.
    pub uses_old_self: bool,
}

/// Checks the rules of a schema, without those of nested schemas; one result for each. `resource`
/// means that the value is an object with metadata. `None` if CEL cannot access the value.
pub fn examine(schema: &Value, resource: bool) -> Option<Vec<RuleVerdict>> {
    let node = SchemaNode::compile(schema);
    let declared = DeclaredNode::new(&node, resource);
    let Some(rules) = node.rules() else {
        return Some(Vec::new());
    };
    let compiled: &Compiled = rules.compiled(declared);
    compiled.shape.as_ref()?;
    Some(
        compiled
            .rules
            .iter()
            .map(|rule| RuleVerdict::new(rule, declared))
            .collect(),
    )
}

impl RuleVerdict {
    fn new(rule: &CompiledRule, declared: DeclaredNode) -> RuleVerdict {
        let error =
            |program: &Option<Result<Program, String>>| program.as_ref()?.as_ref().err().cloned();
        let cost = |program: &Option<Result<Program, String>>| {
            program
                .as_ref()?
                .as_ref()
                .ok()
                .map(|program| program.estimate(&declared).max)
        };
        RuleVerdict {
            error: error(&rule.program),
            message_error: error(&rule.message),
            cost: cost(&rule.program).unwrap_or_default(),
            message_cost: cost(&rule.message),
            cardinality: cardinality(declared),
            uses_old_self: rule.uses_old_self,
        }
    }
}
