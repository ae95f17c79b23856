//! AlwaysPullImages: the images of a pod are pulled at every start, so that only users with credentials for a private
//! image can run it, even if a node already has it.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Status, Violations, aggregate};
use mizzen_value::Value;

use super::Attributes;

const ALWAYS: &str = "Always";
/// Kubernetes: in the order in which upstream visits containers.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Sets the pull policy of every image of a pod.
pub(super) fn admit(attributes: &Attributes, pod: &mut CanonicalObject) -> Result<(), Status> {
    if is_ignored(attributes, pod) {
        return Ok(());
    }
    let Some(spec) = pod.get_mut("spec") else {
        return Ok(());
    };
    for list in CONTAINER_LISTS {
        let containers = spec.get_mut(list).map(Value::list_mut).unwrap_or_default();
        containers
            .iter_mut()
            .for_each(|container| container.set("imagePullPolicy", ALWAYS));
    }
    for volume in spec
        .get_mut("volumes")
        .map(Value::list_mut)
        .unwrap_or_default()
    {
        if let Some(image) = volume.get_mut("image") {
            image.set("pullPolicy", ALWAYS);
        }
    }
    Ok(())
}

/// Rejects a pod if a later plug-in has changed a pull policy.
///
/// Kubernetes: the errors are joined without a status, so the code is 500 (alwayspullimages/admission.go).
pub(super) fn check(attributes: &Attributes, pod: &Value) -> Result<(), Status> {
    if is_ignored(attributes, pod) {
        return Ok(());
    }
    let problems = violations(&pod["spec"]).0.into_iter().map(|violation| {
        let Status { message, .. } = attributes.forbidden(pod, &violation.to_string());
        message
    });
    aggregate(problems).map_or(Ok(()), |problems| Err(Status::unknown(problems)))
}

fn violations(spec: &Value) -> Violations {
    let mut violations = Violations::default();
    let mut expect_always = |path: String, policy: &Value| {
        if policy.str() != ALWAYS {
            violations.not_supported(path, policy.str(), &[ALWAYS]);
        }
    };
    for list in CONTAINER_LISTS {
        for (index, container) in spec[list].list().iter().enumerate() {
            expect_always(
                format!("spec.{list}[{index}].imagePullPolicy"),
                &container["imagePullPolicy"],
            );
        }
    }
    for (index, volume) in spec["volumes"].list().iter().enumerate() {
        if !volume["image"].is_null() {
            expect_always(
                format!("spec.volumes[{index}].image.pullPolicy"),
                &volume["image"]["pullPolicy"],
            );
        }
    }
    violations
}

/// Only pods are checked, and updates only if they add an image.
fn is_ignored(attributes: &Attributes, pod: &Value) -> bool {
    let images = |pod: &Value| -> Vec<String> {
        let containers = CONTAINER_LISTS
            .iter()
            .flat_map(|list| pod["spec"][*list].list());
        containers
            .map(|container| container["image"].str().to_owned())
            .collect()
    };
    let has_no_new_image = |old: &Value| {
        let known = images(old);
        images(pod).iter().all(|image| known.contains(image))
    };
    !attributes.is_main("", "pods") || attributes.old.is_some_and(has_no_new_image)
}
