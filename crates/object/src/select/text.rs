//! Label selectors of objects (`matchLabels`, `matchExpressions`) as text.

use mizzen_value::Value;

/// A selector as query text: `a=b,c in (d,e),!f`, by key; empty if it is empty or absent.
/// Kubernetes: `LabelSelectorAsSelector(…).String()`.
pub fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].entries();
    let labels = labels.map(|(key, value)| (key, format!("{key}={}", value.str())));
    let expressions = selector["matchExpressions"].list().iter();
    let expressions = expressions.map(|expression| {
        let key = expression["key"].str();
        let mut values: Vec<&str> = expression["values"].list().iter().map(Value::str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, text)
    });
    let mut parts: Vec<(&str, String)> = labels.chain(expressions).collect();
    parts.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    texts.join(",")
}

/// A selector as its Go value prints itself, in events and tables.
pub fn go_selector_text(selector: &Value) -> String {
    if selector.is_null() {
        return "nil".into();
    }
    let mut labels: Vec<_> = selector["matchLabels"].entries().collect();
    labels.sort_by_key(|(key, _)| *key);
    let labels: String = labels
        .into_iter()
        .map(|(key, value)| format!("{key}: {},", value.str()))
        .collect();
    let expression = |expression: &Value| {
        let values: Vec<&str> = expression["values"].list().iter().map(Value::str).collect();
        let (key, operator) = (expression["key"].str(), expression["operator"].str());
        format!(
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},",
            values.join(" ")
        )
    };
    let expressions: String = selector["matchExpressions"]
        .list()
        .iter()
        .map(expression)
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[test]
    fn selectors_are_written_by_key() {
        let go = |inner: &str| format!("&LabelSelector{{{inner}}}");
        let cases = [
            ("null", "", "nil".to_owned()),
            (
                "{}",
                "",
                go(
                    "MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},",
                ),
            ),
            (
                r#"{"matchLabels":{"z":"1","a":"2"},"matchExpressions":[{"key":"m","operator":"In","values":["y","x"]},
                    {"key":"n","operator":"DoesNotExist"},{"key":"b","operator":"Exists"}]}"#,
                "a=2,b,m in (x,y),!n,z=1",
                go(
                    "MatchLabels:map[string]string{a: 2,z: 1,},MatchExpressions:[]LabelSelectorRequirement{\
                    LabelSelectorRequirement{Key:m,Operator:In,Values:[y x],},\
                    LabelSelectorRequirement{Key:n,Operator:DoesNotExist,Values:[],},\
                    LabelSelectorRequirement{Key:b,Operator:Exists,Values:[],},},",
                ),
            ),
            (
                r#"{"matchExpressions":[{"key":"m","operator":"NotIn","values":["x"]}]}"#,
                "m notin (x)",
                go(
                    "MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{\
                    LabelSelectorRequirement{Key:m,Operator:NotIn,Values:[x],},},",
                ),
            ),
        ];
        for (selector, text, go) in cases {
            let selector = json::parse(selector.as_bytes()).unwrap();
            assert_eq!(selector_text(&selector), text);
            assert_eq!(go_selector_text(&selector), go);
        }
    }
}
