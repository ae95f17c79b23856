//! The text of a file, from a template.
//!
//! `{{name}}` is the value of that name. The lines between `{{#name}}` and `{{/name}}` are there once for each item if it
//! is a list, and once or not at all if it is a boolean; `{{^name}}` begins lines that are there if it is empty or false.
//! A name is looked up in the innermost item first. Lines with only a section mark are left out.

use mizzen_value::Value;

/// Fills in a template. A name without a value is a mistake in the template, and panics.
pub(crate) fn render(template: &str, context: &Value) -> String {
    let mut out = String::new();
    let lines: Vec<&str> = template.split_inclusive('\n').collect();
    section(&lines, &mut vec![context], &mut out);
    out
}

/// The mark of a section: `#`, `^` or `/`, and its name.
fn mark(line: &str) -> Option<(char, &str)> {
    let inner = line.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let sign = inner.chars().next()?;
    "#^/".contains(sign).then(|| (sign, &inner[1..]))
}

fn section(lines: &[&str], contexts: &mut Vec<&Value>, out: &mut String) {
    let mut idx = 0;
    while idx < lines.len() {
        let Some((sign, name)) = mark(lines[idx]) else {
            line(lines[idx], contexts, out);
            idx += 1;
            continue;
        };
        let is_end = |line: &&str| mark(line) == Some(('/', name));
        let n_lines = lines[idx + 1..].iter().position(is_end);
        let end = idx + 1 + n_lines.unwrap_or_else(|| panic!("no end of {name}"));
        let body = &lines[idx + 1..end];
        let value = lookup(name, contexts);
        let is_empty = value.is_empty();
        match (sign, value) {
            ('^', _) if is_empty => section(body, contexts, out),
            ('#', Value::List(items)) => {
                for item in items {
                    contexts.push(item);
                    section(body, contexts, out);
                    contexts.pop();
                }
            }
            ('#', _) if !is_empty => section(body, contexts, out),
            _ => {}
        }
        idx = end + 1;
    }
}

fn line(mut line: &str, contexts: &[&Value], out: &mut String) {
    while let Some((before, rest)) = line.split_once("{{") {
        let (name, after) = rest.split_once("}}").expect("a mark ends in its line");
        out.push_str(before);
        out.push_str(lookup(name, contexts).str());
        line = after;
    }
    out.push_str(line);
}

fn lookup<'v>(name: &str, contexts: &[&'v Value]) -> &'v Value {
    let mut values = contexts
        .iter()
        .rev()
        .filter_map(|context| context.get(name));
    values
        .next()
        .unwrap_or_else(|| panic!("no value of {name}"))
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let context = value!({
            "name": "shop",
            "yes": true,
            "no": false,
            "kinds": [{"kind": "Oven", "versions": [{"version": "v1"}]}, {"kind": "Rack", "versions": []}],
        });
        assert_eq!(render(template, &context), expected);
    }

    #[test]
    fn names_are_replaced_by_values() {
        check("a {{name}} b {{name}}\n{ } }}\n", "a shop b shop\n{ } }}\n");
    }

    #[test]
    fn sections_are_there_or_not() {
        check("{{#yes}}\n1\n{{/yes}}\n{{#no}}\n2\n{{/no}}\n3\n", "1\n3\n");
        check("{{^yes}}\n1\n{{/yes}}\n  {{^no}}\n2\n  {{/no}}\n", "2\n");
    }

    #[test]
    fn sections_of_lists_are_there_for_each_item() {
        let template = "{{#kinds}}\n{{kind}} of {{name}}\n{{#versions}}\n- {{kind}} {{version}}\n{{/versions}}\n\
                        {{^versions}}\n- none\n{{/versions}}\n{{/kinds}}\n";
        check(template, "Oven of shop\n- Oven v1\nRack of shop\n- none\n");
    }
}
