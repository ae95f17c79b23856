//! Validation options: what an update may keep because the old object has it.
//!
//! Validation became stricter over time. A value that was accepted once may stay on update; a new object must pass all
//! rules.

use mizzen_object::validate::{names, selector};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{
    affinity, annotations, containers, is_sidecar, resources, scheduling, security, volumes,
};

/// What is tolerated. Nothing, unless an old object excuses it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// It is a pod, not the template of one.
    pub(super) is_pod: bool,
    pub(super) any_deletion_cost: bool,
    /// Values that no label can have, in selectors of pods.
    pub any_selector_values: bool,
    /// The same, in selectors of nodes.
    pub(super) any_node_values: bool,
    pub(super) any_spread_selectors: bool,
    /// Keys in `matchLabelKeys` that the selector has as well.
    pub(super) repeated_label_keys: bool,
    /// Huge pages that are not a whole number of pages.
    pub(super) any_huge_pages: bool,
    pub(super) any_token_paths: bool,
    pub(super) sysctls_of_host: bool,
    pub(super) any_selinux_policy: bool,
    pub(super) restarting_init_containers: bool,
    pub(super) devices_of_namespaced_users: bool,
    pub(super) network_of_namespaced_users: bool,
    pub(super) comparing_tolerations: bool,
}

impl Options {
    /// What the old pod or template excuses.
    pub fn of(old: Option<&Value>) -> Options {
        let Some(old) = old else {
            return Options::default();
        };
        let spec = &old["spec"];
        let shares_network = spec["hostNetwork"].bool();
        let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"];
        let expressions = terms
            .items()
            .flat_map(|term| term["matchExpressions"].list());
        let mut values = expressions.flat_map(|expression| expression["values"].list());
        let any_node_values = values.any(|value| !names::is_label_value(value.str()).is_empty());
        let sources = spec["volumes"]
            .items()
            .flat_map(|volume| volume["projected"]["sources"].list());
        let mut tokens = sources
            .map(|source| &source["serviceAccountToken"])
            .filter(|token| !token.is_null());
        let any_token_paths = tokens.any(|token| {
            violates(|path, violations| volumes::local_path(token["path"].str(), path, violations))
        });
        Options {
            is_pod: false,
            any_deletion_cost: !annotations::is_deletion_cost(&old["metadata"]["annotations"]),
            any_selector_values: violates(|path, violations| {
                affinity::terms(spec, |term| {
                    affinity::validate_selectors(term, false, path, violations)
                });
            }),
            any_node_values,
            any_spread_selectors: violates(|path, violations| {
                for constraint in spec["topologySpreadConstraints"].list() {
                    let options = selector::SelectorOptions::default();
                    selector::label_selector(
                        &constraint["labelSelector"],
                        options,
                        path,
                        violations,
                    );
                }
            }),
            repeated_label_keys: violates(|path, violations| {
                for constraint in spec["topologySpreadConstraints"].list() {
                    scheduling::validate_label_keys(constraint, path, violations);
                }
            }),
            any_huge_pages: containers(spec).any(has_odd_huge_pages)
                || resources::has_odd_huge_pages(&spec["overhead"]),
            any_token_paths,
            sysctls_of_host: spec["securityContext"]["sysctls"]
                .items()
                .any(|sysctl| security::host_sysctl(sysctl["name"].str(), spec).is_some()),
            any_selinux_policy: !spec["securityContext"]["seLinuxChangePolicy"].is_null(),
            restarting_init_containers: spec["initContainers"].items().any(|container| {
                let restarts = |policy: &Value| policy["restartPolicy"].str() == "RestartContainer";
                !is_sidecar(container) && container["resizePolicy"].items().any(restarts)
            }),
            devices_of_namespaced_users: has_namespaced_users(spec)
                && containers(spec).any(|container| !container["volumeDevices"].is_empty()),
            network_of_namespaced_users: has_namespaced_users(spec) && shares_network,
            comparing_tolerations: spec["tolerations"]
                .items()
                .any(|toleration| matches!(toleration["operator"].str(), "Lt" | "Gt")),
        }
    }
}

fn violates(check: impl FnOnce(&Path, &mut Violations)) -> bool {
    let mut violations = Violations::default();
    check(&Path::new(""), &mut violations);
    !violations.is_empty()
}

fn has_odd_huge_pages(container: &Value) -> bool {
    ["limits", "requests"]
        .into_iter()
        .any(|list| resources::has_odd_huge_pages(&container["resources"][list]))
}

/// Whether the pod's users are not the host's.
pub(super) fn has_namespaced_users(spec: &Value) -> bool {
    spec["hostUsers"].as_bool() == Some(false)
}
