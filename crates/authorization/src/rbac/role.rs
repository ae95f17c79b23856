//! A Role or ClusterRole: its rules, and a set of their verbs.

use std::sync::Arc;

use mizzen_value::Value;

use super::PolicyRule;

/// A parsed role.
#[derive(Debug)]
pub(super) struct RbacRole {
    pub rules: Arc<[Arc<PolicyRule>]>,
    /// The verbs of all rules.
    verbs: Verbs,
}

impl RbacRole {
    pub(super) fn new(object: &Value) -> RbacRole {
        let rules: Arc<[Arc<PolicyRule>]> = object["rules"]
            .list()
            .iter()
            .map(|rule| Arc::new(PolicyRule::new(rule)))
            .collect();
        let verbs = rules
            .iter()
            .flat_map(|rule| &rule.verbs)
            .fold(0, |verbs, verb| verbs | Verbs::from_verb(verb).0);
        RbacRole {
            rules,
            verbs: Verbs(verbs),
        }
    }

    /// Whether a rule may have this verb. If not, the rules need not be matched.
    pub(super) fn may_have(&self, verb: Verbs) -> bool {
        self.verbs.0 & verb.0 != 0
    }
}

/// A set of verbs as bits. Uncommon verbs share one, and `*` has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verbs(u16);

const USUAL: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

impl Verbs {
    pub(super) fn from_verb(verb: &str) -> Verbs {
        match USUAL.iter().position(|usual| *usual == verb) {
            _ if verb == "*" => Verbs(u16::MAX),
            Some(at) => Verbs(1 << at),
            None => Verbs(1 << USUAL.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json::parse;

    use super::*;

    #[test]
    fn a_role_is_skipped_only_if_no_rule_has_the_verb() {
        let may = |rules: &str, verb: &str| {
            RbacRole::new(&parse(format!(r#"{{"rules":{rules}}}"#).as_bytes()).unwrap())
                .may_have(Verbs::from_verb(verb))
        };
        let two = r#"[{"verbs":["get"]},{"verbs":["list","bind"]}]"#;
        assert!(may(two, "get") && may(two, "list") && may(two, "bind"));
        assert!(!may(two, "delete") && !may("[]", "get"));
        assert!(may(r#"[{"verbs":["*"]}]"#, "delete") && may(r#"[{"verbs":["*"]}]"#, "escalate"));
        // For the verb `*` the rules decide.
        assert!(may(two, "*"));
    }
}
