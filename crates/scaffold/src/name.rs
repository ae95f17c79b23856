//! Which names can a project, a group, a version and a kind have?

use mizzen_value::validation::names;

/// Why a name cannot be used, with one that can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} {problem}; for example {example}")]
pub struct NameError {
    what: &'static str,
    name: String,
    problem: String,
    example: &'static str,
}

/// A kind of name: what it is called in messages, and an example.
pub(crate) struct NameKind(&'static str, &'static str);

pub(crate) const PROJECT: NameKind = NameKind("the name of a project", "shop-operator");
pub(crate) const DOMAIN: NameKind = NameKind("the domain", "example.com");
pub(crate) const GROUP: NameKind = NameKind("the group", "shop");
pub(crate) const VERSION: NameKind = NameKind("the version", "v1alpha1");
pub(crate) const KIND: NameKind = NameKind("the kind", "Oven");
pub(crate) const PLURAL: NameKind = NameKind("the plural", "ovens");

impl NameKind {
    fn error(&self, name: &str, problem: impl Into<String>) -> NameError {
        NameError {
            what: self.0,
            name: name.to_owned(),
            problem: problem.into(),
            example: self.1,
        }
    }

    fn check(&self, name: &str, is_valid: bool, problem: &str) -> Result<(), NameError> {
        match is_valid {
            true => Ok(()),
            false => Err(self.error(name, problem)),
        }
    }
}

/// What Rust does not accept as the name of a module or crate.
const KEYWORDS: [&str; 51] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// What Python does not accept in addition.
const PYTHON_KEYWORDS: [&str; 18] = [
    "and", "assert", "class", "def", "del", "elif", "except", "finally", "from", "global",
    "import", "is", "lambda", "none", "nonlocal", "not", "or", "with",
];

/// Crates that a project uses, and names that Cargo reserves.
const CRATES: [&str; 19] = [
    "alloc",
    "build",
    "clap",
    "core",
    "deps",
    "examples",
    "incremental",
    "k8s-openapi",
    "kopf",
    "kube",
    "mizzen",
    "mizzen-sdk",
    "mizzen-testing",
    "proc-macro",
    "schemars",
    "serde",
    "std",
    "test",
    "tokio",
];

/// Types and modules that the sources of a project use beside its kinds.
const TYPES: [&str; 34] = [
    "Action",
    "Api",
    "Applier",
    "Arc",
    "Box",
    "Client",
    "Clock",
    "Cluster",
    "Condition",
    "Conditions",
    "ConfigMap",
    "Context",
    "Controller",
    "Conversions",
    "CustomResource",
    "CustomResourceDefinition",
    "Definitions",
    "Denied",
    "Error",
    "Explore",
    "Fixtures",
    "JsonSchema",
    "Main",
    "Manager",
    "Manifests",
    "ObjectMeta",
    "Option",
    "Rbac",
    "Result",
    "Server",
    "String",
    "Vec",
    "Violations",
    "Webhook",
];

/// A name of a project: a directory, a crate, a Deployment.
pub(crate) fn check_project(name: &str) -> Result<(), NameError> {
    let problems = names::is_dns1035_label(name);
    if let Some(problem) = problems.first() {
        return Err(PROJECT.error(name, format!("is not a DNS label: {problem}")));
    }
    let module = name.replace('-', "_");
    let is_word = KEYWORDS.contains(&&*module) || PYTHON_KEYWORDS.contains(&&*module);
    PROJECT.check(name, !is_word, "is a word of the language")?;
    PROJECT.check(
        name,
        !CRATES.contains(&name),
        "is the name of another crate",
    )?;
    // The Deployment, its ServiceAccount and the Service of its webhooks add a suffix.
    PROJECT.check(name, name.len() <= 50, "is longer than 50 characters")
}

/// The domain of the API groups of a project.
pub(crate) fn check_domain(domain: &str) -> Result<(), NameError> {
    match names::is_dns1123_subdomain(domain).first() {
        Some(problem) => Err(DOMAIN.error(domain, format!("is not a DNS name: {problem}"))),
        None => DOMAIN.check(domain, domain.contains('.'), "has no dot"),
    }
}

/// The first label of an API group.
pub(crate) fn check_group(group: &str, domain: &str) -> Result<(), NameError> {
    if group.contains('.') {
        let problem = format!("has a dot: it is one label, and {domain} is appended");
        return Err(GROUP.error(group, problem));
    }
    match names::is_dns1035_label(group).first() {
        Some(problem) => Err(GROUP.error(group, format!("is not a DNS label: {problem}"))),
        None => Ok(()),
    }
}

/// A version of a kind. Kubernetes: apimachinery/pkg/version/helpers.go orders these.
pub(crate) fn check_version(version: &str) -> Result<(), NameError> {
    let is_number = |text: &str| {
        !text.is_empty() && !text.starts_with('0') && text.bytes().all(|it| it.is_ascii_digit())
    };
    let is_valid = version.strip_prefix('v').is_some_and(|rest| {
        let mut stages = ["alpha", "beta"].into_iter();
        let parts = stages.find_map(|stage| rest.split_once(stage));
        match parts {
            Some((major, minor)) => is_number(major) && is_number(minor),
            None => is_number(rest),
        }
    });
    VERSION.check(
        version,
        is_valid,
        "is not v1, v1beta1 or v1alpha1 with numbers from 1",
    )
}

/// A kind: a type of Rust, and in lower case a module.
pub(crate) fn check_kind(kind: &str) -> Result<(), NameError> {
    let is_camel_case = kind.starts_with(|first: char| first.is_ascii_uppercase())
        && kind.chars().all(|it| it.is_ascii_alphanumeric())
        && kind.chars().any(|it| it.is_ascii_lowercase());
    KIND.check(
        kind,
        is_camel_case,
        "is not in CamelCase, of letters and digits",
    )?;
    KIND.check(kind, kind.len() <= 63, "is longer than 63 characters")?;
    let module = snake_case(kind);
    let is_word = KEYWORDS.contains(&&*module) || PYTHON_KEYWORDS.contains(&&*module);
    KIND.check(kind, !is_word, "is a word of the language in lower case")?;
    let is_used = TYPES.contains(&kind);
    KIND.check(kind, !is_used, "is the name of a type that the sources use")?;
    let is_list = kind.ends_with("List") || kind.ends_with("Spec") || kind.ends_with("Status");
    KIND.check(kind, !is_list, "ends as the types of another kind do")
}

/// The plural of a kind, the name of its resource.
pub(crate) fn check_plural(plural: &str) -> Result<(), NameError> {
    match names::is_dns1035_label(plural).first() {
        Some(problem) => Err(PLURAL.error(plural, format!("is not a DNS label: {problem}"))),
        None => Ok(()),
    }
}

/// `HTTPRoute` as `http_route`.
pub(crate) fn snake_case(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut snake = String::new();
    for (idx, letter) in letters.iter().enumerate() {
        let follows_lower = idx > 0 && !letters[idx - 1].is_ascii_uppercase();
        let precedes_lower = letters.get(idx + 1).is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && idx > 0 && (follows_lower || precedes_lower) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The plural of a kind in English: ovens, boxes, policies.
pub(crate) fn plural(kind: &str) -> String {
    let word = kind.to_ascii_lowercase();
    let is_vowel = |letter: char| "aeiou".contains(letter);
    match word.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{stem}ies"),
        _ if ["s", "x", "z", "ch", "sh"]
            .iter()
            .any(|end| word.ends_with(end)) =>
        {
            format!("{word}es")
        }
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<const N: usize>(
        rule: impl Fn(&str) -> Result<(), NameError>,
        valid: &[&str],
        invalid: [(&str, &str); N],
    ) {
        for name in valid {
            assert_eq!(rule(name), Ok(()), "{name}");
        }
        for (name, problem) in invalid {
            let error = rule(name).expect_err(name).to_string();
            assert!(error.contains(problem), "{error}");
            assert!(error.contains("; for example "), "{error}");
        }
    }

    #[test]
    fn a_project_is_named_as_a_crate_and_a_deployment() {
        check(
            check_project,
            &["a", "shop-operator", "shop2"],
            [
                ("", "is not a DNS label"),
                ("Shop", "is not a DNS label"),
                ("2shop", "is not a DNS label"),
                ("shop_operator", "is not a DNS label"),
                ("type", "is a word of the language"),
                ("class", "is a word of the language"),
                ("kube", "is the name of another crate"),
                ("test", "is the name of another crate"),
                (&"x".repeat(51), "is longer than 50 characters"),
            ],
        );
    }

    #[test]
    fn a_domain_is_a_dns_name_and_a_group_its_first_label() {
        check(
            check_domain,
            &["example.com", "a.b-c.d"],
            [
                ("com", "has no dot"),
                ("Example.com", "is not a DNS name"),
                ("", "is not a DNS name"),
            ],
        );
        check(
            |group| check_group(group, "example.com"),
            &["shop", "web2"],
            [
                (
                    "shop.example.com",
                    "has a dot: it is one label, and example.com is appended",
                ),
                ("Shop", "is not a DNS label"),
                ("", "is not a DNS label"),
            ],
        );
    }

    #[test]
    fn a_version_is_one_that_kubernetes_orders() {
        let problem = "is not v1, v1beta1 or v1alpha1 with numbers from 1";
        check(
            check_version,
            &["v1", "v10", "v1alpha1", "v2beta12"],
            [
                "1",
                "v0",
                "v01",
                "v1alpha",
                "v1alpha0",
                "v1gamma1",
                "V1",
                "v1alpha1beta1",
                "",
            ]
            .map(|version| (version, problem)),
        );
    }

    #[test]
    fn a_kind_is_a_type_and_a_module() {
        check(
            check_kind,
            &["Oven", "HTTPRoute", "Oven2"],
            [
                ("oven", "is not in CamelCase"),
                ("OVEN", "is not in CamelCase"),
                ("My-Oven", "is not in CamelCase"),
                ("", "is not in CamelCase"),
                ("Type", "is a word of the language in lower case"),
                ("ConfigMap", "is the name of a type that the sources use"),
                ("OvenList", "ends as the types of another kind do"),
            ],
        );
    }

    #[test]
    fn kinds_have_modules_and_plurals() {
        let cases = [
            ("Oven", "oven", "ovens"),
            ("HTTPRoute", "http_route", "httproutes"),
            ("PizzaBox", "pizza_box", "pizzaboxes"),
            ("Policy", "policy", "policies"),
            ("Gateway", "gateway", "gateways"),
            ("Ingress", "ingress", "ingresses"),
            ("Branch", "branch", "branches"),
        ];
        for (kind, module, resource) in cases {
            assert_eq!(
                (snake_case(kind), plural(kind)),
                (module.into(), resource.into())
            );
        }
    }
}
