//! Node selectors and node affinity: which nodes does a selector match?
//!
//! The one rule for scheduler, kubelet, DaemonSets, volumes and devices, in the form in which it is asked often: read once,
//! then matched against names and labels of nodes.
//!
//! Kubernetes: component-helpers/scheduling/corev1/nodeaffinity. Terms are alternatives. A term matches if all of its
//! requirements do; one that is empty, or has a requirement that is not valid, matches no node.

use mizzen_object::select::{LabelSelector, Requirement};
use mizzen_value::{Str, Value};

/// The field of nodes that can be selected by.
const NAME: &str = "metadata.name";

/// One term of a node selector.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSelectorTerm {
    /// None for a term that matches no node.
    requirements: Option<Requirements>,
    names: Option<Vec<Str>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirements {
    labels: LabelSelector,
    fields: Vec<FieldRequirement>,
}

/// One value that a field must have, or must not have.
#[derive(Debug, Clone, PartialEq)]
struct FieldRequirement {
    key: Str,
    value: Str,
    is_equal: bool,
}

impl FieldRequirement {
    /// None if it is not valid: exactly one value, `In` or `NotIn`.
    fn new(expression: &Value) -> Option<FieldRequirement> {
        let [value] = expression["values"].list() else {
            return None;
        };
        Some(FieldRequirement {
            key: expression["key"].str().into(),
            value: value.str().into(),
            is_equal: match expression["operator"].str() {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            },
        })
    }

    /// A field that nodes do not have is empty.
    fn matches(&self, name: &str) -> bool {
        let found = if self.key == NAME { name } else { "" };
        (self.value == found) == self.is_equal
    }
}

impl NodeSelectorTerm {
    /// Reads a term.
    pub fn new(term: &Value) -> NodeSelectorTerm {
        let (labels, fields) = (term["matchExpressions"].list(), term["matchFields"].list());
        let requirements = || {
            let labels: Option<Vec<_>> = labels.iter().map(Requirement::from_value).collect();
            let fields: Option<Vec<_>> = fields.iter().map(FieldRequirement::new).collect();
            Some(Requirements {
                labels: LabelSelector {
                    requirements: labels?,
                },
                fields: fields?,
            })
        };
        let is_empty = labels.is_empty() && fields.is_empty();
        NodeSelectorTerm {
            requirements: (!is_empty).then(requirements).flatten(),
            names: node_names(fields),
        }
    }

    /// Whether it matches a node. Without a name only labels count, as for volumes.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.as_ref().is_some_and(|requirements| {
            let mut fields = requirements.fields.iter();
            requirements.labels.matches(label)
                && (name.is_empty() || fields.all(|field| field.matches(name)))
        })
    }
}

/// The only nodes that requirements of fields can match, if they name them.
fn node_names(fields: &[Value]) -> Option<Vec<Str>> {
    let lists = fields
        .iter()
        .filter(|field| field["key"].str() == NAME && field["operator"].str() == "In");
    lists
        .map(|field| field["values"].list())
        .fold(None, |names: Option<Vec<Str>>, values| match names {
            None => Some(values.iter().map(|value| value.str().into()).collect()),
            Some(mut names) => {
                names.retain(|name| values.iter().any(|value| name == value.str()));
                Some(names)
            }
        })
}

/// What a pod requires of its node: every label of its `nodeSelector`, and one term of its required node affinity.
#[derive(Debug, Clone, PartialEq)]
pub struct RequiredNodeAffinity {
    labels: Box<[(Str, Str)]>,
    terms: Option<Box<[NodeSelectorTerm]>>,
}

impl RequiredNodeAffinity {
    /// Reads it from the spec of a pod.
    pub fn new(spec: &Value) -> RequiredNodeAffinity {
        RequiredNodeAffinity::from_parts(&spec["nodeSelector"], required(spec))
    }

    /// Labels that nodes must have, and a node selector; null if there is none.
    pub fn from_parts(labels: &Value, required: &Value) -> RequiredNodeAffinity {
        let terms = required["nodeSelectorTerms"].items();
        RequiredNodeAffinity {
            labels: labels
                .entries()
                .map(|(key, value)| (key.into(), value.str().into()))
                .collect(),
            terms: (!required.is_null()).then(|| terms.map(NodeSelectorTerm::new).collect()),
        }
    }

    /// Whether it matches a node.
    pub fn matches<'a>(&self, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| label(key) == Some(value))
            && self
                .terms
                .as_ref()
                .is_none_or(|terms| terms.iter().any(|term| term.matches(name, &label)))
    }

    /// The only nodes that it can match, sorted, if every term names some.
    pub fn node_names(&self) -> Option<Vec<Str>> {
        let terms = self.terms.as_ref().filter(|terms| !terms.is_empty())?;
        let names: Option<Vec<_>> = terms.iter().map(|term| term.names.clone()).collect();
        let mut names = names?.concat();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }
}

/// The node selector that a pod's node affinity requires; null if it requires none.
pub fn required(spec: &Value) -> &Value {
    &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    /// Whether node `name` with labels zone=a, cores=8 and empty= is matched.
    #[track_caller]
    fn check_node(name: &str, spec: &str, expected: bool) {
        let labels = read(r#"{"zone":"a","cores":"8","empty":""}"#);
        let affinity = RequiredNodeAffinity::new(&read(spec));
        let found = affinity.matches(name, |key| labels[key].as_str());
        assert_eq!(found, expected, "{spec}");
    }

    fn affinity(terms: &str) -> String {
        format!(
            r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{terms}]}}}}}}}}"#
        )
    }

    #[test]
    fn a_term_matches_if_all_its_requirements_do() {
        let a = r#"{"key":"zone","operator":"In","values":["a"]}"#;
        let b = r#"{"key":"zone","operator":"In","values":["b"]}"#;
        #[rustfmt::skip]
        let cases = [
            // Operators of labels.
            (r#""matchExpressions":[{"key":"zone","operator":"In","values":["b","a"]}]"#, true),
            (r#""matchExpressions":[{"key":"none","operator":"In","values":["a"]}]"#, false),
            (r#""matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"NotIn","values":["a"]}]"#, true),
            (r#""matchExpressions":[{"key":"empty","operator":"In","values":[""]}]"#, true),
            (r#""matchExpressions":[{"key":"empty","operator":"Exists"}]"#, true),
            (r#""matchExpressions":[{"key":"none","operator":"Exists"}]"#, false),
            (r#""matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"DoesNotExist"}]"#, true),
            (r#""matchExpressions":[{"key":"cores","operator":"Gt","values":["7"]}]"#, true),
            (r#""matchExpressions":[{"key":"cores","operator":"Gt","values":["8"]}]"#, false),
            (r#""matchExpressions":[{"key":"cores","operator":"Lt","values":["9"]}]"#, true),
            (r#""matchExpressions":[{"key":"zone","operator":"Lt","values":["9"]}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"Gt","values":["1"]}]"#, false),
            // Requirements that are not valid.
            (r#""matchExpressions":[{"key":"none","operator":"Near","values":["a"]}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"NotIn"}]"#, false),
            (r#""matchExpressions":[{"key":"zone","operator":"Exists","values":["a"]}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"DoesNotExist","values":["a"]}]"#, false),
            (r#""matchExpressions":[{"key":"cores","operator":"Gt","values":["many"]}]"#, false),
            (r#""matchExpressions":[{"key":"cores","operator":"Gt","values":["1","2"]}]"#, false),
            (r#""matchExpressions":[{"key":"a b","operator":"DoesNotExist"}]"#, false),
            (r#""matchExpressions":[{"key":"none","operator":"NotIn","values":["a b"]}]"#, false),
            // Fields.
            (r#""matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]"#, true),
            (r#""matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]"#, false),
            (r#""matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n2"]}]"#, true),
            (r#""matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n1"]}]"#, false),
            (r#""matchFields":[{"key":"metadata.name","operator":"In","values":["n1","n2"]}]"#, false),
            (r#""matchFields":[{"key":"metadata.name","operator":"NotIn","values":[]}]"#, false),
            (r#""matchFields":[{"key":"metadata.name","operator":"Exists"}]"#, false),
            (r#""matchFields":[{"key":"spec.podCIDR","operator":"In","values":[""]}]"#, true),
            (r#""matchFields":[{"key":"metadata.uid","operator":"NotIn","values":["x"]}]"#, true),
            (r#""matchFields":[{"key":"metadata.uid","operator":"In","values":["x"]}]"#, false),
        ];
        for (term, expected) in cases {
            check_node("n1", &affinity(&format!("{{{term}}}")), expected);
        }
        check_node(
            "n1",
            &affinity(&format!(r#"{{"matchExpressions":[{a},{b}]}}"#)),
            false,
        );
        check_node(
            "n1",
            &affinity(&format!(
                r#"{{"matchExpressions":[{b}]}},{{"matchExpressions":[{a}]}}"#
            )),
            true,
        );
    }

    #[test]
    fn an_invalid_term_does_not_affect_the_remaining_terms() {
        let odd = r#"{"matchExpressions":[{"key":"zone","operator":"Near"}]}"#;
        let fine = r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#;
        check_node("n1", &affinity(&format!("{odd},{fine}")), true);
        let names_and_oddity = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}],
            "matchExpressions":[{"key":"zone","operator":"Near"}]}"#;
        check_node("n1", &affinity(names_and_oddity), false);
    }

    #[test]
    fn a_pod_without_affinity_matches_every_node_and_empty_terms_none() {
        check_node("n1", "{}", true);
        check_node("n1", &affinity(""), false);
        check_node("n1", &affinity("{}"), false);
        check_node(
            "n1",
            &affinity(r#"{"matchExpressions":[],"matchFields":[]}"#),
            false,
        );
    }

    #[test]
    fn every_label_of_a_node_selector_counts_beside_the_affinity() {
        check_node("n1", r#"{"nodeSelector":{"zone":"a","cores":"8"}}"#, true);
        check_node("n1", r#"{"nodeSelector":{"zone":"a","disk":"ssd"}}"#, false);
        check_node("n1", r#"{"nodeSelector":{"none":""}}"#, false);
        let term = r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#;
        let both = affinity(term).replacen('{', r#"{"nodeSelector":{"zone":"b"},"#, 1);
        check_node("n1", &both, false);
    }

    #[test]
    fn without_a_name_fields_do_not_count() {
        let fields = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}"#;
        check_node("", &affinity(fields), true);
        check_node("n2", &affinity(fields), false);
        let odd = r#"{"matchFields":[{"key":"metadata.name","operator":"Near","values":["n1"]}]}"#;
        check_node("", &affinity(odd), false);
    }

    #[test]
    fn nodes_are_named_if_every_term_names_some() {
        let name = |names: &str| {
            format!(
                r#"{{"matchFields":[{{"key":"metadata.name","operator":"In","values":[{names}]}}]}}"#
            )
        };
        let (one, two) = (name(r#""n1""#), name(r#""n2""#));
        let by_label = r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#;
        let both = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]},
            {"key":"metadata.name","operator":"In","values":["n2"]}]}"#;
        let cases: [(&str, Option<&[&str]>); 6] = [
            (&one, Some(&["n1"])),
            (&format!("{two},{one},{two}"), Some(&["n1", "n2"])),
            (&format!("{two},{by_label}"), None),
            (&format!("{two},{{}}"), None),
            (both, Some(&[])),
            ("", None),
        ];
        for (terms, expected) in cases {
            let names = RequiredNodeAffinity::new(&read(&affinity(terms))).node_names();
            let names: Option<Vec<&str>> = names
                .as_ref()
                .map(|names| names.iter().map(Str::as_str).collect());
            assert_eq!(names.as_deref(), expected, "{terms}");
        }
    }
}
