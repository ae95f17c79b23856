//! Parts of pods in messages.
//!
//! Kubernetes: messages print upstream's internal types as JSON: Go's field names in Go's order, nothing left
//! out, and some fields in other places than in the API. `internal.types` says which; a line is Go's name, the
//! API's name where it is not the same but for its first letter (`^name`: of the enclosing object), and the type.
//! `?` may be null, `[]` and `map` are null when absent, `...` brings in the fields of another type.

use std::collections::HashMap;
use std::sync::LazyLock;

use mizzen_value::{Map, Value, json};

/// The internal form of a value.
pub fn form(ty: &str, value: &Value) -> Value {
    let mut form = Map::default();
    fill(ty, value, &Value::Null, &mut form);
    form.into()
}

/// The internal form of each of some values.
pub(super) fn form_list(ty: &str, values: &[Value]) -> Value {
    Value::List(values.iter().map(|value| form(ty, value)).collect())
}

/// The internal form of a value, one member to a line.
pub(super) fn pretty(ty: &str, value: &Value) -> String {
    let mut text = String::new();
    write(&form(ty, value), 0, &mut text);
    text
}

fn fill(ty: &str, value: &Value, parent: &Value, form: &mut Map) {
    for field in TYPES.get(ty).into_iter().flatten() {
        if field.go == "..." {
            // Metadata keeps the API's form wherever it is.
            let ty = field.ty;
            if ty != "meta" {
                fill(ty, value, parent, form);
            } else {
                for (name, value) in value["metadata"]
                    .entries()
                    .filter(|(_, value)| !value.is_empty())
                {
                    form.insert(name, value.clone());
                }
            }
        } else {
            let member = match field.name.strip_prefix('^') {
                Some(name) => &parent[name],
                None => &value[field.name.as_str()],
            };
            form.insert(field.go, member_form(field.ty, member, value));
        }
    }
}

fn member_form(ty: &str, value: &Value, parent: &Value) -> Value {
    if let Some(ty) = ty.strip_prefix('?') {
        return if value.is_null() {
            Value::Null
        } else {
            member_form(ty, value, parent)
        };
    }
    if let Some(item) = ty.strip_prefix("[]") {
        return match value {
            Value::List(items) => Value::List(
                items
                    .iter()
                    .map(|item_value| member_form(item, item_value, value))
                    .collect(),
            ),
            _ => Value::Null,
        };
    }
    if TYPES.contains_key(ty) {
        let mut form = Map::default();
        fill(ty, value, parent, &mut form);
        return form.into();
    }
    match (ty, value) {
        ("string", Value::Null) => "".into(),
        ("quantity", Value::Null) => "0".into(),
        ("int", Value::Null) => 0.into(),
        ("bool", Value::Null) => false.into(),
        (_, Value::Map(map)) => {
            let mut map = map.clone();
            map.sort();
            map.into()
        }
        (_, value) => value.clone(),
    }
}

struct FormField {
    go: &'static str,
    name: String,
    ty: &'static str,
}

static TYPES: LazyLock<HashMap<&str, Vec<FormField>>> = LazyLock::new(|| {
    let mut types: HashMap<&str, Vec<FormField>> = HashMap::new();
    let mut current = "";
    for line in include_str!("internal.types")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        match line.strip_prefix("type ") {
            Some(name) => current = name,
            None => types.entry(current).or_default().extend(field(line)),
        }
    }
    types
});

/// Reads `HostIP=hostIP string`, `Name string` or `... VolumeSource`.
fn field(line: &'static str) -> Option<FormField> {
    let (names, ty) = line.trim().split_once(' ')?;
    let (go, name) = match names.split_once('=') {
        Some((go, name)) => (go, name.into()),
        None => {
            let (first, rest) = names.split_at(1);
            (names, first.to_ascii_lowercase() + rest)
        }
    };
    Some(FormField { go, name, ty })
}

fn write(value: &Value, depth: usize, text: &mut String) {
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', depth));
    };
    match value {
        Value::Map(map) if !map.is_empty() => {
            for (index, (name, member)) in map.iter().enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                line(text, depth + 1);
                text.push_str(&json::to_string(&name.into()));
                text.push_str(": ");
                write(member, depth + 1, text);
            }
            line(text, depth);
            text.push('}');
        }
        Value::List(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                line(text, depth + 1);
                write(item, depth + 1, text);
            }
            line(text, depth);
            text.push(']');
        }
        value => text.push_str(&json::to_string(value)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use mizzen_value::{Value, json, value};

    use super::{TYPES, form, pretty};

    fn shown(ty: &str, value: &Value) -> String {
        json::to_string(&form(ty, value))
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        let basic = ["string", "int", "bool", "quantity", "raw", "meta", "bytes"];
        for field in TYPES.values().flatten() {
            let ty = field
                .ty
                .trim_start_matches(['?', '[', ']'])
                .trim_start_matches("map ");
            assert!(basic.contains(&ty) || TYPES.contains_key(ty), "{ty}");
        }
    }

    #[test]
    fn nothing_is_left_out() {
        let context = value!({"privileged": true, "capabilities": {"add": ["CAP_SYS_ADMIN"]}});
        expect![[r#"{"Capabilities":{"Add":["CAP_SYS_ADMIN"],"Drop":null},"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":null,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}"#]]
            .assert_eq(&shown("SecurityContext", &context));
    }

    #[test]
    fn what_the_host_shares_is_in_the_security_context() {
        let spec = value!({"hostPID": true, "securityContext": {}});
        assert!(
            shown("PodSpec", &spec)
                .contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#)
        );
    }

    #[test]
    fn metadata_keeps_its_names() {
        let template = value!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
        assert!(
            shown("PodTemplateSpec", &template)
                .starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#)
        );
    }

    #[test]
    fn a_long_form_has_a_member_to_a_line() {
        expect![[r#"
            {
             "Key": "a",
             "Path": "",
             "Mode": null
            }"#]]
        .assert_eq(&pretty("KeyToPath", &value!({"key": "a"})));
    }
}
