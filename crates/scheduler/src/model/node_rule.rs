//! On which nodes may a pod be, by their labels and names?

use mizzen_object::select::{LabelSelector, Operator, Requirement};
use mizzen_object::{Str, Value, json};

use super::labels::Labels;

/// One term of a node selector: all of it must hold. A term that says nothing holds nowhere.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeTerm {
    labels: LabelSelector,
    names: LabelSelector,
}

impl NodeTerm {
    pub(crate) fn of(term: &Value) -> NodeTerm {
        NodeTerm {
            labels: selector(&term["matchExpressions"]),
            names: selector(&term["matchFields"]),
        }
    }

    pub(crate) fn holds(&self, name: &str, labels: &Labels) -> bool {
        (!self.labels.is_empty() || !self.names.is_empty())
            && labels.match_selector(&self.labels)
            && self
                .names
                .matches(|field| (field == "metadata.name").then_some(name))
    }

    /// The only nodes that it can hold on, if it names them.
    fn named(&self) -> Option<Vec<Str>> {
        let lists = self
            .names
            .requirements
            .iter()
            .filter(|requirement| requirement.key == "metadata.name");
        lists.fold(None, |names, requirement| {
            match (&requirement.operator, names) {
                (Operator::In(values), None) => Some(values.clone()),
                (Operator::In(values), Some(names)) => Some(
                    names
                        .into_iter()
                        .filter(|name| values.contains(name))
                        .collect(),
                ),
                (_, names) => names,
            }
        })
    }
}

fn selector(expressions: &Value) -> LabelSelector {
    let requirement = |expression: &Value| {
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
            "Gt" => number().map_or(Operator::In(Vec::new()), Operator::Greater),
            "Lt" => number().map_or(Operator::In(Vec::new()), Operator::Less),
            _ => Operator::In(Vec::new()),
        };
        Requirement {
            key: expression["key"].str().into(),
            operator,
        }
    };
    LabelSelector {
        requirements: expressions.list().iter().map(requirement).collect(),
    }
}

/// What a pod demands of its node: every label of its selector, and one of its terms.
#[derive(Debug, Clone)]
pub(crate) struct NodeRule {
    /// What tells it from other rules.
    pub text: Str,
    selector: Box<[(Str, Str)]>,
    terms: Option<Box<[NodeTerm]>>,
}

impl NodeRule {
    /// The rule of a pod; none if it goes anywhere.
    pub(crate) fn of(spec: &Value) -> Option<NodeRule> {
        let required =
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        NodeRule::new(&spec["nodeSelector"], required)
    }

    /// A rule of exact labels and a node selector; none if there is neither.
    pub(crate) fn new(labels: &Value, required: &Value) -> Option<NodeRule> {
        if labels.is_null() && required.is_null() {
            return None;
        }
        let text = format!("{}{}", json::to_string(labels), json::to_string(required));
        let selector = labels
            .entries()
            .map(|(key, value)| (key.into(), value.str().into()))
            .collect();
        let terms = required["nodeSelectorTerms"]
            .list()
            .iter()
            .map(NodeTerm::of);
        Some(NodeRule {
            text: text.into(),
            selector,
            terms: (!required.is_null()).then(|| terms.collect()),
        })
    }

    pub(crate) fn allows(&self, name: &str, labels: &Labels) -> bool {
        self.selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.holds(name, labels)))
    }

    /// The only nodes that it can allow, if every term names some.
    pub(crate) fn named(&self) -> Option<Vec<Str>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let mut names = terms
            .iter()
            .map(NodeTerm::named)
            .collect::<Option<Vec<_>>>()?
            .concat();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    #[track_caller]
    fn check(spec: &str, allows: bool, named: Option<&[&str]>) {
        let rule = NodeRule::of(&object(spec)).expect("a rule");
        let labels = Labels::of(&object(r#"{"disk":"ssd","cores":"8"}"#));
        assert_eq!(rule.allows("n1", &labels), allows, "{spec}");
        let expected = named.map(|names| {
            names
                .iter()
                .map(|name| Str::from(*name))
                .collect::<Vec<_>>()
        });
        assert_eq!(rule.named(), expected, "{spec}");
    }

    fn required(terms: &str) -> String {
        format!(
            r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":{terms}}}}}}}}}"#
        )
    }

    #[test]
    fn every_label_of_a_selector_is_needed() {
        check(r#"{"nodeSelector":{"disk":"ssd"}}"#, true, None);
        check(r#"{"nodeSelector":{"disk":"ssd","zone":"a"}}"#, false, None);
    }

    #[test]
    fn one_term_is_enough_and_an_empty_one_holds_nowhere() {
        check(&required("[{}]"), false, None);
        let greater = r#"{"matchExpressions":[{"key":"cores","operator":"Gt","values":["7"]}]}"#;
        check(&required(&format!("[{{}},{greater}]")), true, None);
    }

    #[test]
    fn nodes_are_named_if_every_term_names_some() {
        let name = |names: &str| {
            format!(
                r#"{{"matchFields":[{{"key":"metadata.name","operator":"In","values":{names}}}]}}"#
            )
        };
        check(
            &required(&format!("[{}]", name(r#"["n1"]"#))),
            true,
            Some(&["n1"]),
        );
        check(
            &required(&format!("[{},{}]", name(r#"["n2"]"#), name(r#"["n1"]"#))),
            true,
            Some(&["n1", "n2"]),
        );
        let by_label = r#"{"matchExpressions":[{"key":"disk","operator":"Exists"}]}"#;
        check(
            &required(&format!("[{},{by_label}]", name(r#"["n2"]"#))),
            true,
            None,
        );
    }
}
