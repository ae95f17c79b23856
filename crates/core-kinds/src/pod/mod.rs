//! Pods, and the templates of pods that other kinds hold.
//!
//! `default` applies defaults, `prepare` sets server-owned fields; `spec` validates a pod, `update` a change of one, `status`
//! a reported status; `warnings` produces warnings; `subresource` has the rules of ephemeral containers, resizing and
//! binding.

mod affinity;
mod annotations;
mod capabilities;
mod claim;
mod containers;
mod default;
mod diff;
mod env;
mod image;
mod internal;
mod mounts;
mod options;
mod overlaps;
mod prepare;
mod probes;
mod projected;
mod resources;
mod scheduling;
mod security;
mod sources;
mod spec;
mod status;
mod subresource;
mod update;
mod volumes;
mod warnings;
mod windows;

use mizzen_component_helpers::pod_state::{CONTAINER_LISTS, is_sidecar, is_terminal};
use mizzen_object::validate::meta;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Str, Value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub use affinity::validate_node_selector;
pub use capabilities::disallow_privileged;
pub use claim::{claim_spec_warnings, validate_claim_spec};
pub use default::{default_template, each, round, with};
pub use internal::form;
pub use options::Options;
pub use prepare::drop_disabled;
pub use subresource::validate_binding;
pub use update::same;
pub use warnings::{name_warning, old_node_label, template_warnings};

/// The statuses of the lists of containers, in the same order.
const STATUS_LISTS: [&str; 3] = [
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Kubernetes: how messages show a path without a name.
const NOWHERE: &str = "[]";

pub(crate) const BEHAVIOUR: Behaviour = Behaviour {
    default: default::default_pod,
    prepare: prepare::prepare,
    warnings: warnings::warnings,
    ..Behaviour::of::<PodStrategy>()
};

/// The pod itself, of which only ephemeral containers are added.
pub(crate) const EPHEMERAL_CONTAINERS: Behaviour = Behaviour {
    prepare: |new, old, _| {
        if let Some(old) = old {
            subresource::prepare_ephemeral_containers(new, old);
        }
    },
    validate: |new, old, _, violations| {
        if let Some(old) = old {
            subresource::validate_ephemeral_containers(new, old, violations);
        }
    },
    ..BEHAVIOUR
};

/// The pod itself, of which only resources change.
pub(crate) const RESIZE: Behaviour = Behaviour {
    prepare: |new, old, _| {
        if let Some(old) = old {
            subresource::prepare_resize(new, old);
        }
    },
    validate: |new, old, _, violations| {
        if let Some(old) = old {
            subresource::validate_resize(new, old, violations);
        }
    },
    ..BEHAVIOUR
};

pub(super) struct PodStrategy;

impl KindStrategy for PodStrategy {
    fn validate(
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        let options = Options {
            is_pod: true,
            ..Options::of(old)
        };
        match (context.action, old) {
            (Action::Status, Some(old)) => status::validate(new, old, &options, violations),
            (_, Some(old)) => update::validate(new, old, &options, violations),
            (_, None) => spec::validate_new(new, &options, violations),
        }
    }

    /// The first address is enough to find a pod, and whether it shares the host's network is never unsaid.
    fn selectable(pod: &Value, field: &str) -> Option<Str> {
        match field {
            "spec.hostNetwork" => Some(pod["spec"]["hostNetwork"].bool().to_string().into()),
            "status.podIP" => Some(pod["status"]["podIPs"][0]["ip"].str().into()),
            _ => None,
        }
    }

    /// A pod that runs somewhere is given time to stop.
    fn grace_period(pod: &Value, requested: Option<i64>) -> Option<i64> {
        let idle = pod["spec"]["nodeName"].str().is_empty() || is_terminal(pod);
        let seconds = requested.unwrap_or(pod["spec"]["terminationGracePeriodSeconds"].int());
        Some(match seconds {
            _ if idle => 0,
            seconds if seconds < 0 => 1,
            seconds => seconds,
        })
    }
}

/// The template of a kind that makes pods. `old` is the template that it replaces.
pub fn validate_template(
    template: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    validate_template_with(template, &Options::of(old), path, violations);
}

/// Tolerations outside a pod, in the configuration of an admission plug-in.
pub fn validate_tolerations(tolerations: &Value, path: &Path, violations: &mut Violations) {
    scheduling::validate_tolerations(tolerations, &Options::default(), path, violations);
}

/// Like [`validate_template`], with given validation options.
pub fn validate_template_with(
    template: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    validate_template_annotations(template, options, path, violations);
    let (spec, spec_path) = (&template["spec"], path.child("spec"));
    spec::validate(spec, None, options, &spec_path, violations);
    annotations::match_fields(
        &template["metadata"]["annotations"],
        spec,
        &spec_path,
        violations,
    );
    if !spec["ephemeralContainers"].is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        violations.forbidden(spec_path.child("ephemeralContainers"), detail);
    }
}

/// Kubernetes: a template's metadata is shown as if it were the template's own (`template.labels`).
pub fn validate_template_annotations(
    template: &Value,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    let metadata = &template["metadata"];
    meta::labels(&metadata["labels"], &path.child("labels"), violations);
    let path = path.child("annotations");
    meta::annotations(&metadata["annotations"], &path, violations);
    annotations::validate(
        &metadata["annotations"],
        &template["spec"],
        options,
        &path,
        violations,
    );
}

/// What differs between two values of a type, in the form that messages quote.
pub fn difference(ty: &str, old: &Value, new: &Value) -> String {
    diff::unified(&internal::pretty(ty, old), &internal::pretty(ty, new))
}

/// Every container with its place, whatever its list.
fn visit_containers<'a>(spec: &'a Value, path: &Path, mut visit: impl FnMut(&'a Value, &Path)) {
    for list in CONTAINER_LISTS {
        let path = path.child(list);
        for (index, container) in spec[list].items().enumerate() {
            visit(container, &path.index(index));
        }
    }
}

/// Every container, whatever its list.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS
        .into_iter()
        .flat_map(|list| spec[list].list())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::PodStrategy;
    use mizzen_apiextensions::KindStrategy;

    #[test]
    fn only_a_running_pod_gets_a_grace_period() {
        let running = value!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        assert_eq!(PodStrategy::grace_period(&running, None), Some(30));
        assert_eq!(PodStrategy::grace_period(&running, Some(5)), Some(5));
        assert_eq!(PodStrategy::grace_period(&running, Some(-5)), Some(1));
        let unscheduled = value!({"spec": {"terminationGracePeriodSeconds": 30}});
        assert_eq!(PodStrategy::grace_period(&unscheduled, Some(5)), Some(0));
        let done = value!({"spec": {"nodeName": "n"}, "status": {"phase": "Failed"}});
        assert_eq!(PodStrategy::grace_period(&done, None), Some(0));
    }
}
