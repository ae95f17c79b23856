//! SubjectAccessReviews of authorization attributes.

use mizzen_object::User;
use mizzen_object::select::{FieldSelector, LabelSelector, SelectorOperator};
use mizzen_value::{Map, Str, Value, value};

use super::{Attributes, AttributesTarget, ResourceAttributes};

/// The `spec` of a SubjectAccessReview, without empty fields.
pub fn review_spec(attributes: &Attributes) -> Value {
    let Attributes {
        user:
            User {
                name,
                uid,
                groups,
                extra,
            },
        verb,
        target,
    } = attributes;
    let mut spec = Value::object();
    match target {
        AttributesTarget::Resource(resource) => {
            let mut attributes = filled(texts(verb, resource));
            for (field, requirements) in selectors(resource) {
                attributes.set(field, value!({ "requirements": requirements }));
            }
            spec.set("resourceAttributes", attributes);
        }
        AttributesTarget::NonResource(path) => spec.set(
            "nonResourceAttributes",
            filled([("path", *path), ("verb", *verb)]),
        ),
    }
    let more = [
        ("user", name.into()),
        ("groups", list(groups)),
        ("extra", extra.clone()),
        ("uid", uid.into()),
    ];
    for (field, value) in more
        .into_iter()
        .filter(|(_, value): &(_, Value)| !value.is_empty())
    {
        spec.set(field, value);
    }
    spec
}

/// The same as match conditions see it: with all string fields, even empty ones.
pub(super) fn condition_request(attributes: &Attributes) -> Value {
    let Attributes {
        user:
            User {
                name,
                uid,
                groups,
                extra,
            },
        verb,
        target,
    } = attributes;
    let extra = if extra.is_null() {
        Value::object()
    } else {
        extra.clone()
    };
    let mut request =
        value!({ "user": name, "groups": (list(groups)), "uid": uid, "extra": extra });
    match target {
        AttributesTarget::Resource(resource) => {
            let mut attributes = Value::Map(texts(verb, resource).into_iter().collect());
            for (field, mut requirements) in selectors(resource) {
                requirements
                    .list_mut()
                    .iter_mut()
                    .for_each(|one| one.set_default("values", Vec::new()));
                attributes.set(field, value!({ "requirements": requirements }));
            }
            request.set("resourceAttributes", attributes);
        }
        AttributesTarget::NonResource(path) => {
            request.set(
                "nonResourceAttributes",
                value!({ "verb": (*verb), "path": (*path) }),
            );
        }
    }
    request
}

fn texts<'a>(verb: &'a str, asked: &ResourceAttributes<'a>) -> [(&'static str, &'a str); 7] {
    let ResourceAttributes {
        group,
        version,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = *asked;
    [
        ("namespace", namespace),
        ("verb", verb),
        ("group", group),
        ("version", version),
        ("resource", resource),
        ("subresource", subresource),
        ("name", name),
    ]
}

fn filled<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    Value::Map(
        texts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .collect::<Map>(),
    )
}

fn list(texts: &[Str]) -> Value {
    Value::List(texts.iter().map(Value::from).collect())
}

/// The requirements of selectors. Kubernetes: what cannot be parsed is left out, which makes the
/// request broader (plugin/pkg/authorizer/webhook/webhook.go).
fn selectors(resource: &ResourceAttributes) -> impl Iterator<Item = (&'static str, Value)> {
    let all = [
        ("fieldSelector", fields(resource.fields)),
        ("labelSelector", labels(resource.labels)),
    ];
    let some = all
        .into_iter()
        .filter(|(_, requirements)| !requirements.is_empty());
    some.map(|(field, requirements)| (field, Value::List(requirements)))
}

fn fields(selector: &str) -> Vec<Value> {
    let terms = FieldSelector::parse(selector).unwrap_or_default().terms;
    let requirement = |(field, equal, value): (Str, bool, Str)| value!({ "key": field, "operator": (if equal { "In" } else { "NotIn" }), "values": [value] });
    terms.into_iter().map(requirement).collect()
}

fn labels(selector: &str) -> Vec<Value> {
    let mut requirements = LabelSelector::parse(selector)
        .unwrap_or_default()
        .requirements;
    requirements.sort_by(|one, other| one.key.cmp(&other.key));
    let requirements = requirements.into_iter().filter_map(|requirement| {
        let (word, values) = match &requirement.operator {
            SelectorOperator::In(values) => ("In", values.as_slice()),
            SelectorOperator::NotIn(values) => ("NotIn", values.as_slice()),
            SelectorOperator::Exists => ("Exists", &[][..]),
            SelectorOperator::Absent => ("DoesNotExist", &[][..]),
            SelectorOperator::Greater(_) | SelectorOperator::Less(_) => return None,
        };
        let mut shown = value!({ "key": (requirement.key), "operator": word });
        if !values.is_empty() {
            shown.set("values", list(values));
        }
        Some(shown)
    });
    requirements.collect()
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn jane() -> User {
        let extra = value!({ "scopes": ["a"] });
        User {
            name: "jane".into(),
            groups: vec!["dev".into()],
            uid: "7".into(),
            extra,
        }
    }

    #[track_caller]
    fn check(shown: impl Fn(&Attributes) -> Value, target: AttributesTarget, expected: &str) {
        let user = jane();
        assert_eq!(
            json::to_string(&shown(&Attributes {
                user: &user,
                verb: "list",
                target
            })),
            expected
        );
    }

    #[test]
    fn a_review_omits_empty_fields() {
        let pods = ResourceAttributes {
            version: "v1",
            resource: "pods",
            namespace: "a",
            ..ResourceAttributes::default()
        };
        check(
            review_spec,
            AttributesTarget::Resource(pods),
            r#"{"resourceAttributes":{"namespace":"a","verb":"list","version":"v1","resource":"pods"},"user":"jane","groups":["dev"],"extra":{"scopes":["a"]},"uid":"7"}"#,
        );
        check(
            review_spec,
            AttributesTarget::NonResource("/metrics"),
            r#"{"nonResourceAttributes":{"path":"/metrics","verb":"list"},"user":"jane","groups":["dev"],"extra":{"scopes":["a"]},"uid":"7"}"#,
        );
    }

    #[test]
    fn valid_selectors_become_requirements() {
        let pods = ResourceAttributes {
            fields: "spec.nodeName=n1,status.phase!=Failed",
            labels: "b in (y,x),a,!c,d>5",
            ..ResourceAttributes::default()
        };
        check(
            |attributes| review_spec(attributes)["resourceAttributes"].clone(),
            AttributesTarget::Resource(pods),
            r#"{"verb":"list","fieldSelector":{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]},{"key":"status.phase","operator":"NotIn","values":["Failed"]}]},"labelSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"b","operator":"In","values":["x","y"]},{"key":"c","operator":"DoesNotExist"}]}}"#,
        );
        let nonsense = ResourceAttributes {
            fields: "a=b=c",
            labels: "a=(",
            ..ResourceAttributes::default()
        };
        check(
            |attributes| review_spec(attributes)["resourceAttributes"].clone(),
            AttributesTarget::Resource(nonsense),
            r#"{"verb":"list"}"#,
        );
    }

    #[test]
    fn match_conditions_see_every_field() {
        let pods = ResourceAttributes {
            resource: "pods",
            labels: "a",
            ..ResourceAttributes::default()
        };
        check(
            |attributes| condition_request(attributes)["resourceAttributes"].clone(),
            AttributesTarget::Resource(pods),
            r#"{"namespace":"","verb":"list","group":"","version":"","resource":"pods","subresource":"","name":"","labelSelector":{"requirements":[{"key":"a","operator":"Exists","values":[]}]}}"#,
        );
    }
}
