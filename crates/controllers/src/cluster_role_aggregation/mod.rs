//! The cluster role aggregation controller: an aggregated ClusterRole has the rules of all roles
//! that it selects.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::{Context, dynamic};
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::CLUSTER_ROLES;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const NAME: &str = "clusterrole-aggregation-controller";
/// The index of aggregated roles.
const AGGREGATED: &str = "aggregated";
const WORKERS: usize = 5;

struct Roles {
    context: ControllerContext,
    roles: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named(NAME);
    let roles = context.informer(&CLUSTER_ROLES);
    roles.add_index(
        AGGREGATED,
        Arc::new(|role: &Entry<Object>| {
            let is_aggregated = role
                .object()
                .is_ok_and(|role| !role["aggregationRule"].is_null());
            if is_aggregated {
                vec![String::new()]
            } else {
                Vec::new()
            }
        }),
    );
    let known = roles.store().clone();
    // Any role may be selected by any aggregated role, and there are few of them.
    let source = dynamic(&CLUSTER_ROLES).handler(move |_, queue| {
        for role in known.by_index(AGGREGATED, "").unwrap_or_default() {
            queue.add(role.key().clone());
        }
    });
    Controller::for_kind(&context, source)
        .queue_name("ClusterRoleAggregator")
        .workers(WORKERS)
        .reconcile(Roles { context, roles })
}

impl Reconcile for Roles {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(role) = self.roles.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        if role["aggregationRule"].is_null() {
            return Ok(Action::done());
        }
        let rules = rules(&role, &self.roles.lister().list()?);
        if rules != role["rules"].list() {
            let how = PatchType::Apply { manager: NAME };
            self.context
                .api
                .patch(
                    &CLUSTER_ROLES,
                    key,
                    "",
                    how,
                    &apply_configuration(key.name(), rules),
                )
                .await?;
        }
        Ok(Action::done())
    }
}

/// The apply configuration. Without rules the field is omitted, so that rules written by hand stay.
fn apply_configuration(name: &str, rules: Vec<Value>) -> Value {
    let mut role = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
    });
    if !rules.is_empty() {
        role.set("rules", rules);
    }
    role
}

/// The rules of all selected roles without duplicates, in the order of selectors and names.
fn rules(role: &Object, roles: &[Arc<Object>]) -> Vec<Value> {
    let mut roles: Vec<&Object> = roles
        .iter()
        .map(|other| &**other)
        .filter(|other| other.name() != role.name())
        .collect();
    roles.sort_by_key(|role| role.name());
    let mut rules: Vec<Value> = Vec::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].list() {
        let Some(selector) = LabelSelector::from_value(selector) else {
            continue;
        };
        for part in roles
            .iter()
            .filter(|part| selector.matches(|label| part.label(label)))
        {
            for rule in part["rules"].list() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selectors: &str, expected: &[&str]) {
        let text = format!(
            r#"{{"metadata":{{"name":"all","labels":{{"x":"1"}}}},"aggregationRule":{{"clusterRoleSelectors":{selectors}}}}}"#
        );
        let parts = [
            r#"{"metadata":{"name":"b","labels":{"x":"1"}},"rules":[{"verbs":["get"]},{"verbs":["list"]}]}"#,
            r#"{"metadata":{"name":"a","labels":{"x":"1"}},"rules":[{"verbs":["list"]}]}"#,
            r#"{"metadata":{"name":"c","labels":{"x":"2"}},"rules":[{"verbs":["watch"]}]}"#,
            text.as_str(),
        ];
        let parts = parts.map(|part| Arc::new(Object::parse(part.as_bytes()).unwrap()));
        let rules = rules(&parts[3], &parts);
        let verbs: Vec<&str> = rules.iter().map(|rule| rule["verbs"][0].str()).collect();
        assert_eq!(verbs, expected);
    }

    #[test]
    fn rules_come_once_in_the_order_of_selectors_and_names() {
        check(r#"[{"matchLabels":{"x":"1"}}]"#, &["list", "get"]);
        check(
            r#"[{"matchLabels":{"x":"2"}},{"matchLabels":{"x":"1"}}]"#,
            &["watch", "list", "get"],
        );
        check(
            r#"[{"matchExpressions":[{"key":"x","operator":"Exists"}]}]"#,
            &["list", "get", "watch"],
        );
        check(r#"[{"matchLabels":{"x":"3"}}]"#, &[]);
    }

    #[test]
    fn rules_written_by_hand_stay() {
        assert!(
            apply_configuration("all", Vec::new())
                .get("rules")
                .is_none()
        );
    }
}
