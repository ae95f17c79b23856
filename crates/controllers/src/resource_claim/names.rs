//! Which resource claims are a pod's? Those it names, and those made for it from templates, which its status names.

use mizzen_sdk::Object;
use mizzen_value::Value;

/// The claim behind an entry of a pod's `resourceClaims`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim<'a> {
    /// Somebody else makes it.
    Named(&'a str),
    /// It was made for the pod.
    Made(&'a str),
    /// None is needed.
    Unneeded,
    /// It is still to be made from this template.
    Missing(&'a str),
    /// It is given in a way that we do not know.
    Unknown,
}

/// The claim behind an entry of a pod's `resourceClaims`.
pub(crate) fn claim<'a>(pod: &'a Value, entry: &'a Value) -> Claim<'a> {
    if let Some(name) = entry["resourceClaimName"].as_str() {
        return Claim::Named(name);
    }
    let Some(template) = entry["resourceClaimTemplateName"].as_str() else {
        return Claim::Unknown;
    };
    let statuses = pod["status"]["resourceClaimStatuses"].list();
    match statuses
        .iter()
        .find(|status| status["name"] == entry["name"])
    {
        None => Claim::Missing(template),
        Some(status) => status["resourceClaimName"]
            .as_str()
            .map_or(Claim::Unneeded, Claim::Made),
    }
}

/// The entries of a pod.
pub(crate) fn entries(pod: &Value) -> &[Value] {
    pod["spec"]["resourceClaims"].list()
}

/// The names of all claims of a pod that are known.
pub(super) fn known(pod: &Value) -> impl Iterator<Item = &str> {
    let extended = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].as_str();
    let listed = entries(pod)
        .iter()
        .filter_map(|entry| match claim(pod, entry) {
            Claim::Named(name) | Claim::Made(name) => Some(name),
            _ => None,
        });
    listed.chain(extended)
}

/// The names of the templates that a pod uses.
pub(super) fn templates(pod: &Value) -> impl Iterator<Item = &str> {
    entries(pod)
        .iter()
        .filter_map(|entry| entry["resourceClaimTemplateName"].as_str())
}

/// Whether none of a pod's containers runs or ever will.
pub(super) fn is_done(pod: &Object) -> bool {
    crate::common::pod::is_terminal(pod)
        || (pod.is_going() && pod["spec"]["nodeName"].str().is_empty())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(entry: Value, status: Value, wanted: Claim) {
        let pod = value!({"status": {"resourceClaimStatuses": [status]}});
        assert_eq!(claim(&pod, &entry), wanted);
    }

    #[test]
    fn the_status_says_what_was_made() {
        let entry = || value!({"name": "gpu", "resourceClaimTemplateName": "t"});
        check(
            value!({"name": "gpu", "resourceClaimName": "mine"}),
            Value::Null,
            Claim::Named("mine"),
        );
        check(entry(), Value::Null, Claim::Missing("t"));
        check(
            entry(),
            value!({"name": "gpu", "resourceClaimName": "p-gpu-x"}),
            Claim::Made("p-gpu-x"),
        );
        check(entry(), value!({"name": "gpu"}), Claim::Unneeded);
        check(value!({"name": "gpu"}), Value::Null, Claim::Unknown);
    }
}
