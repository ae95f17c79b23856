//! The selectors of a SubjectAccessReview as selector strings. What cannot be parsed is left out
//! and reported, which makes the request broader.

use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::validate::names::{is_label_value, is_qualified_name};
use mizzen_value::Value;

/// `fieldSelector` and `labelSelector` of `resourceAttributes`.
#[derive(Debug, Default, PartialEq)]
pub struct ReviewSelectors {
    /// The field selector.
    pub fields: String,
    /// The label selector.
    pub labels: String,
    /// Why parts of them were left out.
    pub problems: Vec<String>,
}

impl ReviewSelectors {
    /// Reads the selectors of `resourceAttributes`.
    pub fn read(attributes: &Value) -> ReviewSelectors {
        let mut problems = Vec::new();
        let mut read =
            |name: &str, is_good: fn(&str) -> bool, term: fn(&Value) -> Option<String>| {
                let (text, problem) = selector_text(&attributes[name], is_good, term);
                problems.extend(problem.map(|how| {
                    format!("spec.resourceAttributes.{name} {how}ignored due to parse error")
                }));
                text
            };
        let fields = read(
            "fieldSelector",
            |text| FieldSelector::parse(text).is_ok(),
            field_term,
        );
        let labels = read(
            "labelSelector",
            |text| LabelSelector::parse(text).is_ok(),
            label_term,
        );
        ReviewSelectors {
            fields,
            labels,
            problems,
        }
    }
}

/// The string of a selector, and how much was left out, if anything.
fn selector_text(
    selector: &Value,
    is_good: fn(&str) -> bool,
    term: fn(&Value) -> Option<String>,
) -> (String, Option<&'static str>) {
    let (raw, requirements) = (
        selector["rawSelector"].str(),
        selector["requirements"].list(),
    );
    if requirements.is_empty() {
        return if is_good(raw) {
            (raw.into(), None)
        } else {
            (String::new(), Some(""))
        };
    }
    let terms: Vec<String> = requirements.iter().filter_map(term).collect();
    let problem = match terms.len() {
        n_terms if n_terms == requirements.len() => None,
        0 => Some(""),
        _ => Some("partially "),
    };
    (terms.join(","), problem)
}

fn field_term(requirement: &Value) -> Option<String> {
    let operator = match requirement["operator"].str() {
        "In" => "=",
        "NotIn" => "!=",
        _ => return None,
    };
    let [value] = requirement["values"].list() else {
        return None;
    };
    // No field has such a name, and it would be parsed as something else.
    let key = Some(requirement["key"].str()).filter(|key| !key.contains(['=', '!', ',', '\\']))?;
    let value = value
        .str()
        .replace('\\', "\\\\")
        .replace(',', "\\,")
        .replace('=', "\\=");
    Some(format!("{key}{operator}{value}"))
}

fn label_term(requirement: &Value) -> Option<String> {
    let key = Some(requirement["key"].str()).filter(|key| is_qualified_name(key).is_empty())?;
    let values = requirement["values"].list().iter().map(Value::str);
    let values: Vec<&str> = values.collect();
    if !values.iter().all(|value| is_label_value(value).is_empty()) {
        return None;
    }
    match (requirement["operator"].str(), values.is_empty()) {
        ("In", false) => Some(format!("{key} in ({})", values.join(","))),
        ("NotIn", false) => Some(format!("{key} notin ({})", values.join(","))),
        ("Exists", true) => Some(key.to_owned()),
        ("DoesNotExist", true) => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(attributes: &str, fields: &str, labels: &str, problems: &[&str]) {
        let read = ReviewSelectors::read(&json::parse(attributes.as_bytes()).unwrap());
        assert_eq!(
            (read.fields.as_str(), read.labels.as_str()),
            (fields, labels)
        );
        assert_eq!(read.problems, problems);
    }

    #[test]
    fn a_raw_selector_is_unchanged() {
        check(
            r#"{"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"rawSelector":"c in (d)"}}"#,
            "a=b",
            "c in (d)",
            &[],
        );
        check("{}", "", "", &[]);
    }

    #[test]
    fn requirements_become_text() {
        check(
            r#"{"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["x,y"]},{"key":"b","operator":"NotIn","values":["z"]}]},
                "labelSelector":{"requirements":[{"key":"a","operator":"In","values":["x",""]},{"key":"b","operator":"NotIn","values":["y"]},
                    {"key":"c","operator":"Exists"},{"key":"d","operator":"DoesNotExist"}]}}"#,
            r"a=x\,y,b!=z",
            "a in (x,),b notin (y),c,!d",
            &[],
        );
    }

    #[test]
    fn invalid_requirements_are_left_out_and_reported() {
        check(
            r#"{"fieldSelector":{"rawSelector":"a=b=c"},"labelSelector":{"rawSelector":"a=("}}"#,
            "",
            "",
            &[
                "spec.resourceAttributes.fieldSelector ignored due to parse error",
                "spec.resourceAttributes.labelSelector ignored due to parse error",
            ],
        );
        check(
            r#"{"fieldSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"In","values":["z"]}]},
                "labelSelector":{"requirements":[{"key":"a","operator":"In","values":["*"]},{"key":"b","operator":"Near"}]}}"#,
            "b=z",
            "",
            &[
                "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
                "spec.resourceAttributes.labelSelector ignored due to parse error",
            ],
        );
        check(
            r#"{"fieldSelector":{"requirements":[{"key":"a=b,c","operator":"In","values":["z"]}]}}"#,
            "",
            "",
            &["spec.resourceAttributes.fieldSelector ignored due to parse error"],
        );
    }
}
