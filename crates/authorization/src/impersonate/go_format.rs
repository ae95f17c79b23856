//! Users as Go prints them.

use mizzen_value::{Value, json};

use mizzen_object::User;

/// As Go's `%#v`.
pub(super) fn go_syntax(user: &User) -> String {
    let list = |texts: Vec<String>| match texts.is_empty() {
        true => "[]string(nil)".to_string(),
        false => format!("[]string{{{}}}", texts.join(", ")),
    };
    let mut keys: Vec<(&str, &Value)> = user.extra.entries().collect();
    keys.sort_by_key(|(key, _)| *key);
    let extra: Vec<String> = keys
        .iter()
        .map(|(key, values)| {
            let values = values
                .list()
                .iter()
                .map(|value| json::quote(value.str()))
                .collect();
            format!("{}:{}", json::quote(key), list(values))
        })
        .collect();
    let extra = match extra.is_empty() {
        true => "map[string][]string(nil)".to_string(),
        false => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    let groups = list(user.groups.iter().map(|group| json::quote(group)).collect());
    let (name, uid) = (json::quote(&user.name), json::quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// As Go's `%v`.
pub fn go_value(user: &User) -> String {
    let mut extra: Vec<(&str, &Value)> = user.extra.entries().collect();
    extra.sort_by_key(|(key, _)| *key);
    let values = |values: &Value| {
        values
            .list()
            .iter()
            .map(Value::str)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let extra: Vec<String> = extra
        .iter()
        .map(|(key, list)| format!("{key}:[{}]", values(list)))
        .collect();
    format!(
        "&{{{} {} [{}] map[{}]}}",
        user.name,
        user.uid,
        user.groups.join(" "),
        extra.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn a_user_is_shown_as_go_shows_a_struct() {
        let jane = User {
            name: "jane".into(),
            ..User::default()
        };
        assert_eq!(go_value(&jane), "&{jane  [] map[]}");
        let extra = value!({ "b": ["1", "2"], "a": ["x"] });
        let jane = User {
            uid: "7".into(),
            groups: vec!["dev".into(), "ops".into()],
            extra,
            ..jane
        };
        assert_eq!(go_value(&jane), "&{jane 7 [dev ops] map[a:[x] b:[1 2]]}");
    }
}
