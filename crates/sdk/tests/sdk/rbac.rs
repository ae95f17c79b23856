//! The roles that rules become: merged, sorted, minimal.

use k8s_openapi::api::rbac::v1::PolicyRule;
use mizzen_sdk::manifests::Manifests;
use mizzen_sdk::{RbacRule, yaml};
use serde::Deserialize;

/// A ClusterRole or a Role.
#[derive(Deserialize)]
struct GeneratedRole {
    rules: Vec<PolicyRule>,
}

/// The rules of a generated role, as `groups resources [names] verbs`.
fn lines(role: std::io::Result<Vec<u8>>) -> Vec<String> {
    // Without rules there is no role.
    let Ok(text) = role else {
        return Vec::new();
    };
    let role: GeneratedRole = yaml::read(&text).unwrap();
    let join = |list: &Option<Vec<String>>| list.clone().unwrap_or_default().join(",");
    let rules = role.rules.iter().map(|rule| {
        let objects = join(&rule.resources) + &join(&rule.non_resource_urls);
        let (groups, names) = (join(&rule.api_groups), join(&rule.resource_names));
        format!("{groups:?} {objects} [{names}] {}", rule.verbs.join(","))
    });
    rules.collect()
}

#[track_caller]
fn check(rules: &[RbacRule], cluster: &[&str], own: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let manifests = Manifests::new("shop")
        .without_events()
        .without_leader_election();
    let manifests = rules.iter().cloned().fold(manifests, Manifests::rule);
    manifests.write(directory.path()).unwrap();
    let role = |name: &str| lines(std::fs::read(directory.path().join("rbac").join(name)));
    assert_eq!(role("role.yaml"), cluster);
    assert_eq!(role("namespaced_role.yaml"), own);
}

#[test]
fn rules_are_merged_and_sorted() {
    let mut rules = vec![
        RbacRule::new("apps", ["deployments"], ["watch", "get"]),
        RbacRule::new("", ["pods"], ["list"]),
        RbacRule::new("apps", ["statefulsets"], ["get", "watch"]),
        RbacRule::new("apps", ["deployments"], ["get"]),
        RbacRule::new("", ["pods"], ["get"]),
        RbacRule::new("events.k8s.io", ["events"], ["create"]),
        RbacRule::new("", ["events"], ["create"]),
    ];
    let expected = [
        r#""" pods [] get,list"#,
        r#"",events.k8s.io" events [] create"#,
        r#""apps" deployments,statefulsets [] get,watch"#,
    ];
    check(&rules, &expected, &[]);
    // The order of attributes does not matter.
    rules.reverse();
    check(&rules, &expected, &[]);
}

#[test]
fn what_another_rule_grants_is_left_out() {
    check(
        &[
            RbacRule::new("", ["secrets"], ["get", "update"]).names(["licence"]),
            RbacRule::new("", ["secrets"], ["get"]),
            RbacRule::new("", ["secrets"], ["get", "list"]).namespaced(),
            RbacRule::new("batch", ["*"], ["*"]),
            RbacRule::new("batch", ["jobs"], ["get"]),
            RbacRule::new("apps", ["*/scale"], ["get"]),
            RbacRule::new("apps", ["deployments/scale", "deployments"], ["get"]),
        ],
        &[
            r#""" secrets [] get"#,
            r#""" secrets [licence] update"#,
            r#""apps" */scale,deployments [] get"#,
            r#""batch" * [] *"#,
        ],
        &[r#""" secrets [] list"#],
    );
}

#[test]
fn names_and_urls_are_merged() {
    let config = |name: &str| RbacRule::new("", ["configmaps"], ["get"]).names([name]);
    check(
        &[
            config("b").namespaced(),
            config("a").namespaced(),
            RbacRule::urls(["/metrics"], ["get"]),
            RbacRule::urls(["/healthz"], ["get"]),
        ],
        &[r#""" /healthz,/metrics [] get"#],
        &[r#""" configmaps [a,b] get"#],
    );
}
