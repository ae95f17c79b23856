//! The text of a kubeconfig after a change. Sections and list items that did not change keep their text, with comments,
//! order and style.
//!
//! Invariant: the text means what was intended. It is read again, and written anew if it does not.

use mizzen_value::{Value, yaml};

/// The text for `after`, from the text for `before`.
pub(super) fn rewrite(text: &str, before: &Value, after: &Value) -> String {
    let edited = edit(text, before, after);
    let read = yaml::read(edited.as_bytes());
    match read.is_ok_and(|document| document.complaint.is_none() && document.value == *after) {
        true => edited,
        false => yaml::write(after),
    }
}

/// Replaces the sections of keys that changed. Only the text of usual kubeconfigs is understood.
fn edit(text: &str, before: &Value, after: &Value) -> String {
    let mut edited = String::new();
    let mut known = Vec::new();
    for chunk in split(text, |line| top_level_key(line).is_some()) {
        let Some(key) = chunk.lines().find_map(top_level_key) else {
            push(&mut edited, chunk);
            continue;
        };
        known.push(key);
        match (&before[key], after.get(key)) {
            (_, None) => {}
            (old, Some(new)) if old == new => push(&mut edited, chunk),
            (old, Some(new)) => {
                let list = edit_list(chunk, old.list(), new.list());
                push(&mut edited, &list.unwrap_or_else(|| section(key, new)));
            }
        }
    }
    for (key, new) in after.entries() {
        if !known.contains(&key) {
            push(&mut edited, &section(key, new));
        }
    }
    edited
}

/// Replaces the items of a list in block style that changed. None if the text is not such a list.
fn edit_list(text: &str, before: &[Value], after: &[Value]) -> Option<String> {
    let mut lines = text.lines();
    let first = lines.find(|line| line.trim_start().starts_with("- "))?;
    let indent = &first[..first.len() - first.trim_start().len()];
    let chunks = split(text, |line| {
        line.strip_prefix(indent)
            .is_some_and(|rest| rest.starts_with("- "))
    });
    let (head, items) = chunks.split_first()?;
    if items.len() != before.len() || after.is_empty() {
        return None;
    }
    let mut edited = (*head).to_owned();
    for new in after {
        match before.iter().position(|old| old == new) {
            Some(index) => push(&mut edited, items[index]),
            None => {
                let text = yaml::write(&Value::List(vec![new.clone()]));
                for line in text.lines() {
                    push(&mut edited, &format!("{indent}{line}\n"));
                }
            }
        }
    }
    Some(edited)
}

/// Splits text before each line that starts a part. Comments and empty lines belong to the part that follows them. The first
/// chunk is what precedes the first part.
fn split(text: &str, is_start: impl Fn(&str) -> bool) -> Vec<&str> {
    let (mut chunks, mut begin, mut offset) = (Vec::new(), 0, 0);
    // The first of the comments and empty lines directly before `offset`.
    let mut comments = 0;
    for line in text.split_inclusive('\n') {
        let content = line.trim();
        if is_start(line) {
            chunks.push(&text[begin..comments]);
            begin = comments;
        }
        offset += line.len();
        if !content.is_empty() && !content.starts_with('#') {
            comments = offset;
        }
    }
    chunks.push(&text[begin..]);
    chunks
}

/// The key of a line at the top level.
fn top_level_key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    let is_key = key.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    is_key.then(|| key.trim_end())
}

/// The text of a key and its value.
fn section(key: &str, new: &Value) -> String {
    let mut config = Value::object();
    config.set(key, new.clone());
    yaml::write(&config)
}

/// Appends lines; the last line of a file may lack its end.
fn push(text: &mut String, lines: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(lines);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    fn check(text: &str, change: impl FnOnce(&mut Value), expected: &str) {
        let before = yaml::read(text.as_bytes()).unwrap().value;
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(rewrite(text, &before, &after), expected);
    }

    fn add_user(config: &mut Value) {
        config
            .entry("users")
            .make_list()
            .push(value!({"user": {"token": "t"}, "name": "new"}));
    }

    #[test]
    fn items_that_did_not_change_keep_their_text() {
        let text = "\
# mine
users:
  # the first
  - {name: a}   # one

  # the second
  - user:
      token: |
        - x
    name: b
# last
kind: Config
x: 0x10
";
        let expected = "\
# mine
users:
  # the first
  - {name: a}   # one

  # the second
  - user:
      token: |
        - x
    name: b
  - name: new
    user:
      token: t
# last
kind: Config
x: 0x10
";
        check(text, add_user, expected);
        let drop_first = |config: &mut Value| {
            config.entry("users").make_list().remove(0);
        };
        check(
            text,
            drop_first,
            &text.replace("  # the first\n  - {name: a}   # one\n", ""),
        );
    }

    #[test]
    fn sections_are_added_and_replaced() {
        let expected = "kind: Config\nusers:\n- name: new\n  user:\n    token: t\n";
        check("kind: Config", add_user, expected);
        check("kind: Config\nusers: []\n", add_user, expected);
        check("kind: Config\nusers: null\n", add_user, expected);
        let set = |config: &mut Value| config.set("current-context", "new");
        check(
            "current-context: old # comment\n# kept\nkind: Config\n",
            set,
            "current-context: new\n# kept\nkind: Config\n",
        );
    }

    #[test]
    fn text_of_another_style_is_written_anew() {
        let set = |config: &mut Value| config.set("a", "b");
        check(
            r#"{"kind": "Config", "users": []}"#,
            set,
            "a: b\nkind: Config\nusers: []\n",
        );
        check("\"kind\": Config\n", set, "a: b\nkind: Config\n");
    }
}
