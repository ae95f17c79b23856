//! ServiceAccounts.

use mizzen_object::validate::meta;
use mizzen_object::{Action, HookContext, NameRule, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ServiceAccountStrategy>();

pub(super) struct ServiceAccountStrategy;

impl KindStrategy for ServiceAccountStrategy {
    fn prepare(account: &mut Value, _: Option<&Value>, _: &HookContext) {
        for secret in account.entry("secrets").list_mut() {
            *secret = value!({"name": (secret["name"].clone())});
        }
    }

    fn validate(
        account: &Value,
        _: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Update {
            meta::native_object_meta(&account["metadata"], true, NameRule::Subdomain, violations);
        }
    }

    fn warnings(account: &Value, old: Option<&Value>, _: &HookContext) -> Vec<String> {
        let has = |account: &Value| {
            account["metadata"]["annotations"]
                .get(ENFORCE_MOUNTABLE)
                .is_some()
        };
        if !has(account) || old.is_some_and(has) {
            return Vec::new();
        }
        let advice =
            "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        vec![format!(
            "metadata.annotations[{ENFORCE_MOUNTABLE}]: {advice}"
        )]
    }
}

const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn only_names_of_secrets_are_kept() {
        check(BEHAVIOUR)
            .create(r#"{"secrets":[{"name":"a","namespace":"b","kind":"Secret"}]}"#)
            .becomes(r#"{"secrets":[{"name":"a"}]}"#);
    }

    #[test]
    fn a_deprecated_annotation_is_warned_about_once() {
        let account =
            r#"{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}}}"#;
        let warning = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer \
                       separate namespaces to isolate access to mounted secrets";
        check(BEHAVIOUR).create(account).warns(&[warning]);
        check(BEHAVIOUR).update(account, account).warns(&[]);
    }
}
