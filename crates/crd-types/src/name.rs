//! Rust names for fields, types and variants.

use std::collections::BTreeSet;

/// Keywords that can be raw identifiers.
const KEYWORDS: [&str; 49] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let",
    "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return",
    "static", "struct", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized",
    "use", "virtual", "where", "while", "yield",
];

/// Keywords that cannot.
const STRICT_KEYWORDS: [&str; 3] = ["crate", "self", "super"];

/// Names that the code uses.
const USED_TYPES: [&str; 25] = [
    "AnyValue",
    "BTreeMap",
    "Box",
    "Clone",
    "Copy",
    "Cow",
    "CustomResource",
    "Debug",
    "Default",
    "Deserialize",
    "Eq",
    "Err",
    "From",
    "IntOrString",
    "JsonSchema",
    "None",
    "Ok",
    "Option",
    "PartialEq",
    "Result",
    "Self",
    "Serialize",
    "Some",
    "String",
    "Vec",
];

/// The words of a name: `clusterIPs` has `cluster` and `IPs`.
fn words(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (idx, letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            words.push(std::mem::take(&mut word));
            continue;
        }
        let previous = idx.checked_sub(1).map(|idx| letters[idx]);
        let is_lower = |at: usize| letters.get(at).is_some_and(char::is_ascii_lowercase);
        // The plural of an acronym: `IPs`.
        let is_plural = letters.get(idx + 1) == Some(&'s') && !is_lower(idx + 2);
        let starts_word = letter.is_ascii_uppercase()
            && match previous {
                Some(previous) if previous.is_ascii_uppercase() => is_lower(idx + 1) && !is_plural,
                Some(previous) => previous.is_ascii_alphanumeric(),
                None => false,
            };
        if starts_word {
            words.push(std::mem::take(&mut word));
        }
        word.push(*letter);
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// `max_temperature` for `maxTemperature`; not yet an identifier if it is a keyword.
pub(crate) fn snake_case(text: &str) -> String {
    let name = words(text).join("_").to_ascii_lowercase();
    match name.chars().next() {
        None => "field".into(),
        Some(first) if first.is_ascii_digit() => format!("field_{name}"),
        Some(_) => name,
    }
}

/// `MaxTemperature` for `maxTemperature`, `Done` for `DONE`.
pub(crate) fn pascal_case(text: &str) -> String {
    let is_upper_case = !text.chars().any(|letter| letter.is_ascii_lowercase());
    let name: String = words(text)
        .iter()
        .map(|word| match is_upper_case {
            true => word[..1].to_owned() + &word[1..].to_ascii_lowercase(),
            false => word[..1].to_ascii_uppercase() + &word[1..],
        })
        .collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("V{name}"),
        _ => name,
    }
}

/// The name that serde gives a field with `rename_all = "camelCase"`.
pub(crate) fn serde_camel_case(field: &str) -> String {
    let mut name = String::new();
    let mut is_start = false;
    for letter in field.chars() {
        if letter == '_' {
            is_start = true;
        } else if is_start {
            name.push(letter.to_ascii_uppercase());
            is_start = false;
        } else {
            name.push(letter);
        }
    }
    name[..1].to_ascii_lowercase() + &name[1..]
}

/// A name as an identifier.
pub(crate) fn identifier(name: &str) -> String {
    if KEYWORDS.contains(&name) {
        format!("r#{name}")
    } else if STRICT_KEYWORDS.contains(&name) {
        format!("{name}_")
    } else {
        name.to_owned()
    }
}

/// Names that are taken.
pub(crate) struct Names(BTreeSet<String>);

impl Names {
    /// None.
    pub(crate) fn empty() -> Names {
        Names(BTreeSet::new())
    }

    /// Those that the code uses.
    pub(crate) fn of_types() -> Names {
        Names(USED_TYPES.map(str::to_owned).into())
    }

    /// Whether a type can have this name.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        !self.0.contains(name)
    }

    /// The name, or with a number if it is taken: `Port`, `Port2`.
    pub(crate) fn take(&mut self, name: &str, separator: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}{separator}{number}"));
        let mut candidates = std::iter::once(name.to_owned()).chain(numbered);
        let free = candidates.find(|name| self.is_free(name));
        let free = free.expect("there are infinitely many numbers");
        self.0.insert(free.clone());
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_snake_case() {
        for (text, expected) in [
            ("maxTemperature", "max_temperature"),
            ("clusterIPs", "cluster_ips"),
            ("podCIDR", "pod_cidr"),
            ("podCIDRRanges", "pod_cidr_ranges"),
            ("URL", "url"),
            ("ipv4Address", "ipv4_address"),
            ("x-kubernetes-thing", "x_kubernetes_thing"),
            ("$ref", "ref"),
            ("2fa", "field_2fa"),
            ("größe", "gr_e"),
            ("…", "field"),
            ("MatchExpressions", "match_expressions"),
        ] {
            assert_eq!(snake_case(text), expected);
        }
    }

    #[test]
    fn types_and_variants_are_in_pascal_case() {
        for (text, expected) in [
            ("clusterIPs", "ClusterIPs"),
            ("IfNotPresent", "IfNotPresent"),
            ("read-only", "ReadOnly"),
            ("1.2", "V12"),
            ("DONE", "Done"),
            ("IN_PROGRESS", "InProgress"),
            ("", ""),
        ] {
            assert_eq!(pascal_case(text), expected);
        }
    }

    #[test]
    fn keywords_and_taken_names_are_avoided() {
        assert_eq!(identifier("type"), "r#type");
        assert_eq!(identifier("self"), "self_");
        assert_eq!(identifier("name"), "name");
        let mut names = Names::of_types();
        assert_eq!(names.take("Option", ""), "Option2");
        assert_eq!(names.take("Port", ""), "Port");
        assert_eq!(names.take("Port", ""), "Port2");
    }
}
