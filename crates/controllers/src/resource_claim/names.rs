//! The ResourceClaims of a pod: named in its spec, or generated from templates and named in its
//! status.

use mizzen_sdk::Object;
use mizzen_value::Value;

/// The claim of an entry of `spec.resourceClaims`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodClaim<'a> {
    /// It exists independently of the pod.
    Named(&'a str),
    /// It was generated for the pod.
    Made(&'a str),
    /// No claim is needed.
    Unneeded,
    /// It is to be generated from this template.
    Missing(&'a str),
    /// The entry has an unknown form.
    Unknown,
}

/// The claim of an entry of `spec.resourceClaims`.
pub(crate) fn pod_claim<'a>(pod: &'a Value, entry: &'a Value) -> PodClaim<'a> {
    if let Some(name) = entry["resourceClaimName"].as_str() {
        return PodClaim::Named(name);
    }
    let Some(template) = entry["resourceClaimTemplateName"].as_str() else {
        return PodClaim::Unknown;
    };
    let statuses = pod["status"]["resourceClaimStatuses"].list();
    match statuses
        .iter()
        .find(|status| status["name"] == entry["name"])
    {
        None => PodClaim::Missing(template),
        Some(status) => status["resourceClaimName"]
            .as_str()
            .map_or(PodClaim::Unneeded, PodClaim::Made),
    }
}

pub(crate) fn entries(pod: &Value) -> &[Value] {
    pod["spec"]["resourceClaims"].list()
}

/// The names of all claims of a pod that are known.
pub(super) fn claim_names(pod: &Value) -> impl Iterator<Item = &str> {
    let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
    let listed = entries(pod)
        .iter()
        .filter_map(|entry| match pod_claim(pod, entry) {
            PodClaim::Named(name) | PodClaim::Made(name) => Some(name),
            _ => None,
        });
    listed.chain(extended)
}

/// The names of a pod's templates.
pub(super) fn template_names(pod: &Value) -> impl Iterator<Item = &str> {
    entries(pod)
        .iter()
        .filter_map(|entry| entry["resourceClaimTemplateName"].as_str())
}

/// Whether none of the pod's containers runs or will run.
pub(super) fn is_done(pod: &Object) -> bool {
    mizzen_component_helpers::pod_state::is_terminal(pod)
        || (pod.is_terminating() && pod["spec"]["nodeName"].str().is_empty())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(entry: Value, status: Value, wanted: PodClaim) {
        let pod = value!({"status": {"resourceClaimStatuses": [status]}});
        assert_eq!(pod_claim(&pod, &entry), wanted);
    }

    #[test]
    fn the_status_names_generated_claims() {
        let entry = || value!({"name": "gpu", "resourceClaimTemplateName": "t"});
        check(
            value!({"name": "gpu", "resourceClaimName": "mine"}),
            Value::Null,
            PodClaim::Named("mine"),
        );
        check(entry(), Value::Null, PodClaim::Missing("t"));
        check(
            entry(),
            value!({"name": "gpu", "resourceClaimName": "p-gpu-x"}),
            PodClaim::Made("p-gpu-x"),
        );
        check(entry(), value!({"name": "gpu"}), PodClaim::Unneeded);
        check(value!({"name": "gpu"}), Value::Null, PodClaim::Unknown);
    }
}
