//! Does a node have what a pod's spec asks of its node?

use mizzen_object::Value;
use mizzen_object::select::{LabelSelector, Operator, Requirement};
use mizzen_sdk::Object;

/// Whether a node has the labels of the spec's `nodeSelector`, and matches one of the terms that its affinity requires.
pub(super) fn matches(spec: &Value, node: &Object) -> bool {
    let mut labels = spec["nodeSelector"].entries();
    let required = spec.at("affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    let is_selected = labels.all(|(key, value)| node.label(key) == Some(value.str()));
    let mut terms = required["nodeSelectorTerms"].list().iter();
    is_selected && (required.is_null() || terms.any(|term| matches_term(term, node)))
}

/// A term that asks for nothing matches nothing.
fn matches_term(term: &Value, node: &Object) -> bool {
    let (labels, fields) = (term["matchExpressions"].list(), term["matchFields"].list());
    let is_empty = labels.is_empty() && fields.is_empty();
    !is_empty && labels_match(labels, node) && fields.iter().all(|field| field_matches(field, node))
}

/// What cannot be understood matches nothing.
fn labels_match(expressions: &[Value], node: &Object) -> bool {
    let requirements: Option<Vec<Requirement>> = expressions.iter().map(requirement).collect();
    requirements
        .is_some_and(|requirements| LabelSelector { requirements }.matches(|key| node.label(key)))
}

fn requirement(expression: &Value) -> Option<Requirement> {
    let values = || {
        expression["values"]
            .list()
            .iter()
            .map(|value| value.str().into())
            .collect()
    };
    let number = || expression["values"][0].str().parse().ok();
    let operator = match expression["operator"].str() {
        "In" => Operator::In(values()),
        "NotIn" => Operator::NotIn(values()),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::Absent,
        "Gt" => Operator::Greater(number()?),
        "Lt" => Operator::Less(number()?),
        _ => return None,
    };
    Some(Requirement {
        key: expression["key"].str().into(),
        operator,
    })
}

/// A node's name is the only field that can be asked for, and one value the only number of them.
fn field_matches(expression: &Value, node: &Object) -> bool {
    let field = if expression["key"].str() == "metadata.name" {
        node.name()
    } else {
        ""
    };
    match (expression["operator"].str(), expression["values"].list()) {
        ("In", [value]) => value.str() == field,
        ("NotIn", [value]) => value.str() != field,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_object::value;

    use super::*;

    /// Whether node `n1` with labels zone=a and cores=8 is asked for.
    #[track_caller]
    fn check(spec: Value, expect: bool) {
        let node =
            Object(value!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}}));
        assert_eq!(matches(&spec, &node), expect, "{spec:?}");
    }

    fn terms(terms: Vec<Value>) -> Value {
        let required = value!({"nodeSelectorTerms": terms});
        value!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    }

    fn label(key: &str, operator: &str, values: &[&str]) -> Value {
        value!({"matchExpressions": [(expression(key, operator, values))]})
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        value!({"matchFields": [(expression(key, operator, values))]})
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        let values: Vec<Value> = values.iter().map(|value| Value::from(*value)).collect();
        value!({"key": key, "operator": operator, "values": values})
    }

    #[test]
    fn who_asks_for_nothing_gets_every_node() {
        check(Value::object(), true);
    }

    #[test]
    fn every_label_of_a_selector_counts() {
        check(value!({"nodeSelector": {"zone": "a"}}), true);
        check(
            value!({"nodeSelector": {"zone": "a", "disk": "ssd"}}),
            false,
        );
    }

    #[test]
    fn one_term_is_enough() {
        check(
            terms(vec![
                label("zone", "In", &["b"]),
                label("zone", "In", &["a", "c"]),
            ]),
            true,
        );
        check(terms(vec![label("zone", "NotIn", &["a"])]), false);
    }

    #[test]
    fn no_term_and_empty_terms_match_nothing() {
        check(terms(vec![]), false);
        check(terms(vec![Value::object()]), false);
    }

    #[test]
    fn labels_are_compared_as_numbers_where_asked() {
        check(terms(vec![label("cores", "Gt", &["4"])]), true);
        check(terms(vec![label("cores", "Lt", &["8"])]), false);
        check(terms(vec![label("cores", "Gt", &["many"])]), false);
    }

    #[test]
    fn labels_may_have_to_be_there_or_not() {
        check(terms(vec![label("zone", "Exists", &[])]), true);
        check(terms(vec![label("zone", "DoesNotExist", &[])]), false);
        check(terms(vec![label("zone", "Perhaps", &[])]), false);
    }

    #[test]
    fn a_node_can_be_asked_for_by_name() {
        check(terms(vec![field("metadata.name", "In", &["n1"])]), true);
        check(terms(vec![field("metadata.name", "NotIn", &["n1"])]), false);
        check(
            terms(vec![field("metadata.name", "In", &["n1", "n2"])]),
            false,
        );
    }

    #[test]
    fn selector_and_affinity_both_count() {
        let mut spec = terms(vec![label("zone", "In", &["a"])]);
        spec.entry("nodeSelector").set("zone", "b");
        check(spec, false);
    }
}
