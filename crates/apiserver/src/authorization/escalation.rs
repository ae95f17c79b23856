//! Prevention of privilege escalation: to write or bind a role, a user must hold its permissions,
//! or be allowed to `escalate` roles or `bind` this one.

use std::sync::Arc;

use mizzen_authorization::rbac::{PolicyRule, quote_list};
use mizzen_authorization::{
    Attributes, AttributesTarget, Authorizer as _, ResourceAttributes, join_errors,
};
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::json::quote;

use crate::verbs::{ResourceCall, check_key};

/// The API group of RBAC.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a write of a role or binding; other resources pass.
pub(crate) async fn check_escalation(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if call.path.group != GROUP || call.request.user.is_master() {
        return Ok(());
    }
    match call.resource.kind().gvk.kind.as_str() {
        "Role" | "ClusterRole" => check_role(call, old, new).await,
        "RoleBinding" | "ClusterRoleBinding" => check_binding(call, old, new).await,
        _ => Ok(()),
    }
}

async fn check_role(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if is_allowed(call, "escalate", &call.path.resource, &call.path.name).await
        || is_cleanup(old, new)
    {
        return Ok(());
    }
    let rules: Vec<PolicyRule> = new["rules"].list().iter().map(PolicyRule::new).collect();
    check_user_holds(call, rules.iter()).map_err(|why| deny(call, new, &why))?;
    let aggregates = |role: &Value| {
        !role["aggregationRule"]["clusterRoleSelectors"]
            .list()
            .is_empty()
    };
    let everything = [PolicyRule::every_resource(), PolicyRule::every_page()];
    if (aggregates(new) || old.is_some_and(aggregates))
        && check_user_holds(call, everything.iter()).is_err()
    {
        return Err(deny(
            call,
            new,
            "must have cluster-admin privileges to use the aggregationRule",
        ));
    }
    Ok(())
}

async fn check_binding(
    call: &ResourceCall<'_>,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    let reference = &new["roleRef"];
    let (kind, name) = (reference["kind"].str(), reference["name"].str());
    let plural = match kind {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        _ => "",
    };
    if is_cleanup(old, new) || !plural.is_empty() && is_allowed(call, "bind", plural, name).await {
        return Ok(());
    }
    let rules = referenced_rules(call, plural, reference)?;
    check_user_holds(call, rules.iter().map(Arc::as_ref)).map_err(|why| deny(call, new, &why))
}

/// The rules of the role that a binding references.
fn referenced_rules(
    call: &ResourceCall<'_>,
    plural: &str,
    reference: &Value,
) -> Result<Arc<[Arc<PolicyRule>]>, Status> {
    let (kind, name, namespace) = (
        reference["kind"].str(),
        reference["name"].str(),
        &call.path.namespace,
    );
    let Some(role) = call.server.catalog.get(GROUP, "v1", plural) else {
        return Err(Status::failure(
            500,
            "",
            format!("unsupported role reference kind: {}", quote(kind)),
        ));
    };
    check_key(role.kind(), namespace, name)?;
    // Kubernetes: the error names a missing role as if it were a binding
    // (registry/generic/registry/store.go).
    let rules = call
        .server
        .authorization
        .rbac
        .as_ref()
        .and_then(|rbac| rbac.role_rules(reference, namespace));
    rules.ok_or_else(|| Status::not_found(&call.resource.kind().resource(), name))
}

async fn is_allowed(call: &ResourceCall<'_>, verb: &str, resource: &str, name: &str) -> bool {
    let target = AttributesTarget::Resource(ResourceAttributes {
        group: GROUP,
        version: "*",
        resource,
        namespace: &call.path.namespace,
        name,
        ..ResourceAttributes::default()
    });
    let attributes = Attributes {
        user: &call.request.user,
        verb,
        target,
    };
    call.server
        .authorization
        .authorizers
        .authorize(&attributes)
        .await
        .is_allowed()
}

/// Whether the user holds all permissions of `rules`; the error lists the missing ones.
fn check_user_holds<'a>(
    call: &ResourceCall,
    rules: impl Iterator<Item = &'a PolicyRule>,
) -> Result<(), String> {
    let user = &call.request.user;
    let rbac = call.server.authorization.rbac.as_ref();
    let own = rbac
        .map(|rbac| rbac.rules(user, &call.path.namespace))
        .unwrap_or_default();
    let parts = rules.flat_map(PolicyRule::parts);
    let missing: Vec<PolicyRule> = parts
        .filter(|part| !own.rules.iter().any(|rule| rule.covers(part)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<String> = compact(missing).iter().map(PolicyRule::to_string).collect();
    shown.sort();
    shown.dedup();
    let mut why = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quote_list(&user.groups),
        shown.join("\n")
    );
    if !own.problems.is_empty() {
        why += &format!("; resolution errors: [{}]", join_errors(&own.problems));
    }
    Err(why)
}

/// Joins rules that differ only in their verbs. Kubernetes: not those of non-resource URLs
/// (rbac/validation/policy_compact.go).
fn compact(parts: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut joined: Vec<PolicyRule> = Vec::new();
    for part in parts {
        let same = |rule: &&mut PolicyRule| {
            rule.urls.is_empty()
                && (&rule.groups, &rule.resources, &rule.names)
                    == (&part.groups, &part.resources, &part.names)
        };
        match joined.iter_mut().find(same) {
            Some(rule) if part.urls.is_empty() => rule.verbs.extend(part.verbs),
            _ => joined.push(part),
        }
    }
    joined
}

/// Whether a write changes only metadata that the garbage collector maintains.
fn is_cleanup(old: Option<&Value>, new: &Value) -> bool {
    let Some(old) = old else { return false };
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
            object.entry("metadata").remove(field);
        }
        object
    };
    rest(old) == rest(new)
}

fn deny(call: &ResourceCall, object: &Value, why: &str) -> Status {
    Status::forbidden(
        &call.resource.kind().resource(),
        object["metadata"]["name"].str(),
        why,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json::parse;

    fn parts(text: &str) -> Vec<PolicyRule> {
        PolicyRule::new(&parse(text.as_bytes()).unwrap()).parts()
    }

    #[track_caller]
    fn check(rule: &str, expected: &[&str]) {
        let shown: Vec<String> = compact(parts(rule))
            .iter()
            .map(PolicyRule::to_string)
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn missing_rules_are_listed_by_group_resource_and_name() {
        check(
            r#"{"verbs":["get","patch"],"apiGroups":["apps"],"resources":["a","b"]}"#,
            &[
                r#"{APIGroups:["apps"], Resources:["a"], Verbs:["get" "patch"]}"#,
                r#"{APIGroups:["apps"], Resources:["b"], Verbs:["get" "patch"]}"#,
            ],
        );
        check(
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["a"],"resourceNames":["x","y"]}"#,
            &[
                r#"{APIGroups:[""], Resources:["a"], ResourceNames:["x"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["a"], ResourceNames:["y"], Verbs:["get"]}"#,
            ],
        );
    }

    #[test]
    fn non_resource_rules_are_listed_one_by_one() {
        check(
            r#"{"verbs":["get","post"],"nonResourceURLs":["/x"]}"#,
            &[
                r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/x"], Verbs:["post"]}"#,
            ],
        );
    }

    #[test]
    fn only_removals_that_allow_deletion_are_cleanup() {
        let old = parse(br#"{"metadata":{"name":"a","finalizers":["f"]},"rules":[]}"#).unwrap();
        let mut new = old.clone();
        new.entry("metadata").remove("finalizers");
        assert!(is_cleanup(Some(&old), &new));
        new.set("rules", vec![Value::object()]);
        assert!(!is_cleanup(Some(&old), &new));
        assert!(!is_cleanup(None, &old));
    }
}
