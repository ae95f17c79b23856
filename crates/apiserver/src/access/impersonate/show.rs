//! How does Go show a user to people who debug?

use mizzen_object::{Value, json};

use crate::identity::User;

/// A user as Go shows one for people who debug.
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
            let values = values.list().iter().map(|value| json::quote(value.str())).collect();
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
