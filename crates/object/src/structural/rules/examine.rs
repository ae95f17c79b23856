//! What must the author of a rule be told?

use super::compile::{Compiled, CompiledRule};
use super::declare::{Declared, cardinality};
use crate::structural::node::Node;
use mizzen_cel::Program;
use mizzen_value::Value;

/// What there is to say about a rule before it ever runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is no rule.
    pub refusal: Option<String>,
    /// Why its message expression is none.
    pub message_refusal: Option<String>,
    /// The most that it may cost.
    pub cost: u64,
    /// The most that its message expression may cost, if it has one.
    pub message_cost: Option<u64>,
    /// How often the value can stand in one object if nothing around it says.
    pub cardinality: u64,
    /// Whether it asks what the value was.
    pub asks_for_old: bool,
}

/// Looks at the rules of a schema, not at those inside it; one verdict for each. `resource` says whether an object
/// with metadata stands there. `None` if expressions cannot see what does.
pub fn examine(schema: &Value, resource: bool) -> Option<Vec<Verdict>> {
    let node = Node::compile(schema);
    let declared = Declared::new(&node, resource);
    let Some(rules) = node.rules() else {
        return Some(Vec::new());
    };
    let compiled: &Compiled = rules.compiled(declared);
    compiled.shape.as_ref()?;
    Some(
        compiled
            .rules
            .iter()
            .map(|rule| verdict(rule, declared))
            .collect(),
    )
}

fn verdict(rule: &CompiledRule, declared: Declared) -> Verdict {
    let refusal =
        |program: &Option<Result<Program, String>>| program.as_ref()?.as_ref().err().cloned();
    let cost = |program: &Option<Result<Program, String>>| {
        program
            .as_ref()?
            .as_ref()
            .ok()
            .map(|program| program.estimate(&declared).max)
    };
    Verdict {
        refusal: refusal(&rule.program),
        message_refusal: refusal(&rule.message),
        cost: cost(&rule.program).unwrap_or_default(),
        message_cost: cost(&rule.message),
        cardinality: cardinality(declared),
        asks_for_old: rule.asks_for_old,
    }
}
