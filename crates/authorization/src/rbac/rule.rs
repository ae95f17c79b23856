//! One rule of a role: what it allows, and whether it covers another.

use std::fmt;

use mizzen_value::{Str, Value, json};

use crate::{Attributes, AttributesTarget, ResourceAttributes};

/// Matches everything.
const ALL: &str = "*";

/// A PolicyRule of a role.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyRule {
    /// `verbs`.
    pub verbs: Vec<Str>,
    /// `apiGroups`.
    pub groups: Vec<Str>,
    /// `pods`, `pods/log`, `*/scale`.
    pub resources: Vec<Str>,
    /// `resourceNames`; all objects if empty.
    pub names: Vec<Str>,
    /// `nonResourceURLs`.
    pub urls: Vec<Str>,
}

impl PolicyRule {
    /// Parses a rule of a role.
    pub fn new(rule: &Value) -> PolicyRule {
        let texts = |field: &str| {
            rule[field]
                .list()
                .iter()
                .map(|text| text.str().into())
                .collect()
        };
        PolicyRule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// All verbs on all resources.
    pub fn every_resource() -> PolicyRule {
        PolicyRule {
            verbs: vec![ALL.into()],
            groups: vec![ALL.into()],
            resources: vec![ALL.into()],
            ..PolicyRule::default()
        }
    }

    /// All verbs on all non-resource URLs.
    pub fn every_page() -> PolicyRule {
        PolicyRule {
            verbs: vec![ALL.into()],
            urls: vec![ALL.into()],
            ..PolicyRule::default()
        }
    }

    /// Whether this rule allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        has(&self.verbs, attributes.verb)
            && match &attributes.target {
                AttributesTarget::NonResource(path) => {
                    self.urls.iter().any(|url| covers_url(url, path))
                }
                AttributesTarget::Resource(wanted) => self.allows_resource(wanted),
            }
    }

    fn allows_resource(&self, wanted: &ResourceAttributes) -> bool {
        let matches = |rule: &Str| match (rule.as_str(), wanted.subresource) {
            (ALL, _) => true,
            (rule, "") => rule == wanted.resource,
            (rule, subresource) => rule.split_once('/').is_some_and(|(left, right)| {
                right == subresource && (left == ALL || left == wanted.resource)
            }),
        };
        has(&self.groups, wanted.group)
            && self.resources.iter().any(matches)
            && (self.names.is_empty() || self.names.iter().any(|name| name == wanted.name))
    }

    /// Splits the rule: each part has one group, resource, verb and name, or one URL and verb.
    pub fn parts(&self) -> Vec<PolicyRule> {
        let mut parts = Vec::new();
        for (group, resource) in pairs(&self.groups, &self.resources) {
            for verb in &self.verbs {
                let part = PolicyRule {
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    verbs: vec![verb.clone()],
                    ..PolicyRule::default()
                };
                let named = self.names.iter().map(|name| PolicyRule {
                    names: vec![name.clone()],
                    ..part.clone()
                });
                parts.extend(named);
                if self.names.is_empty() {
                    parts.push(part);
                }
            }
        }
        let pages = pairs(&self.urls, &self.verbs);
        parts.extend(pages.map(|(url, verb)| PolicyRule {
            urls: vec![url.clone()],
            verbs: vec![verb.clone()],
            ..PolicyRule::default()
        }));
        parts
    }

    /// Whether this rule grants all that `part` grants, which is one of [`parts`](Self::parts).
    pub fn covers(&self, part: &PolicyRule) -> bool {
        part.verbs.iter().all(|verb| has(&self.verbs, verb))
            && part.groups.iter().all(|group| has(&self.groups, group))
            && part
                .resources
                .iter()
                .all(|resource| self.covers_resource(resource))
            && part
                .urls
                .iter()
                .all(|url| self.urls.iter().any(|own| covers_url(own, url)))
            && (self.names.is_empty()
                || !part.names.is_empty()
                    && part.names.iter().all(|name| self.names.contains(name)))
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let any = |name: &str| self.resources.iter().any(|resource| resource == name);
        let below = wanted
            .split_once('/')
            .map(|(_, subresource)| format!("*/{subresource}"));
        any(ALL) || any(wanted) || below.is_some_and(|below| any(&below))
    }
}

fn pairs<'a>(outer: &'a [Str], inner: &'a [Str]) -> impl Iterator<Item = (&'a Str, &'a Str)> {
    outer
        .iter()
        .flat_map(move |first| inner.iter().map(move |second| (first, second)))
}

fn has(list: &[Str], wanted: &str) -> bool {
    list.iter().any(|known| known == wanted || known == ALL)
}

fn covers_url(own: &str, wanted: &str) -> bool {
    own == wanted || own.ends_with('*') && wanted.starts_with(own.trim_end_matches('*'))
}

/// As error messages print a rule: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown = fields.into_iter().filter(|(_, texts)| !texts.is_empty());
        let shown: Vec<String> = shown
            .map(|(name, texts)| format!("{name}:{}", quote_list(texts)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// Strings as Go prints a list with `%q`: `["a" "b"]`.
pub fn quote_list(texts: &[Str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| json::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::User;
    use mizzen_value::json::parse;

    fn rule(text: &str) -> PolicyRule {
        PolicyRule::new(&parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(rule_text: &str, verb: &str, target: AttributesTarget, allowed: bool) {
        let user = User::default();
        assert_eq!(
            rule(rule_text).allows(&Attributes {
                user: &user,
                verb,
                target
            }),
            allowed
        );
    }

    fn pods<'a>(subresource: &'a str, name: &'a str) -> AttributesTarget<'a> {
        AttributesTarget::Resource(ResourceAttributes {
            resource: "pods",
            subresource,
            name,
            ..ResourceAttributes::default()
        })
    }

    #[test]
    fn a_rule_allows_its_verbs_with_its_resources() {
        let text = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        check(text, "get", pods("", "a"), true);
        check(text, "list", pods("", ""), false);
        check(text, "get", pods("log", "a"), false);
    }

    #[test]
    fn a_subresource_needs_a_rule_of_its_own() {
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/log"]}"#,
            "get",
            pods("log", "a"),
            true,
        );
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["*/log"]}"#,
            "get",
            pods("log", "a"),
            true,
        );
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["*/log"]}"#,
            "get",
            pods("", "a"),
            false,
        );
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["*"]}"#,
            "get",
            pods("log", "a"),
            true,
        );
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/*"]}"#,
            "get",
            pods("log", "a"),
            false,
        );
    }

    #[test]
    fn resource_names_restrict_a_rule() {
        let text =
            r#"{"verbs":["*"],"apiGroups":["*"],"resources":["pods"],"resourceNames":["a"]}"#;
        check(text, "get", pods("", "a"), true);
        check(text, "get", pods("", "b"), false);
        check(text, "list", pods("", ""), false);
    }

    #[test]
    fn non_resource_urls_may_end_in_a_wildcard() {
        let text = r#"{"verbs":["get"],"nonResourceURLs":["/healthz","/apis/*"]}"#;
        check(text, "get", AttributesTarget::NonResource("/healthz"), true);
        check(
            text,
            "get",
            AttributesTarget::NonResource("/healthz/ping"),
            false,
        );
        check(
            text,
            "get",
            AttributesTarget::NonResource("/apis/apps"),
            true,
        );
        check(text, "get", AttributesTarget::NonResource("/apis"), false);
        check(
            r#"{"verbs":["get"],"nonResourceURLs":["*"]}"#,
            "get",
            AttributesTarget::NonResource("/x"),
            true,
        );
        check(
            r#"{"verbs":["get"],"nonResourceURLs":["*"]}"#,
            "get",
            pods("", "a"),
            false,
        );
    }

    #[test]
    fn a_rule_is_split_into_rules_that_it_covers() {
        let whole =
            rule(r#"{"verbs":["get","list"],"apiGroups":["","apps"],"resources":["x","y/z"]}"#);
        assert_eq!(whole.parts().len(), 8);
        assert!(whole.parts().iter().all(|part| whole.covers(part)));
        let named =
            rule(r#"{"verbs":["get"],"apiGroups":[""],"resources":["x"],"resourceNames":["a"]}"#);
        assert!(whole.covers(&named.parts()[0]));
        assert!(!named.covers(&whole.parts()[0]));
        assert!(
            rule(r#"{"verbs":["get"],"apiGroups":["apps"],"resources":["*/z"]}"#)
                .covers(&whole.parts()[6])
        );
    }
}
