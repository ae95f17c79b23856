//! Removes the fields of an object that name or describe it in one cluster only.
//!
//! Without uids, references to an owner lose its uid as well: `mizzen import` fills in that of the owner in the target, and
//! `kubectl apply` rejects the object, instead of leaving it to the garbage collector.

use mizzen_value::Value;

use super::{Keep, group_of};

/// Fields of the identity of an object, besides its name.
const IDENTITY: [&str; 5] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Labels that the API server adds to Jobs and their pods.
const JOB_LABELS: [&str; 4] = [
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "job-name",
    "batch.kubernetes.io/job-name",
];

/// Kinds whose status the API server alone writes, about itself.
const SERVER_STATUS: [(&str, &str); 4] = [
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("networking.k8s.io", "ServiceCIDR"),
];

/// Removes everything that is not kept.
pub(super) fn strip(object: &mut Value, keep: &Keep) {
    let metadata = object.entry("metadata");
    metadata.remove("selfLink");
    if !keep.uid {
        IDENTITY
            .iter()
            .for_each(|field| drop(metadata.remove(field)));
        let owners = metadata.get_mut("ownerReferences");
        let owners = owners.map(Value::list_mut).unwrap_or_default();
        owners
            .iter_mut()
            .for_each(|owner| drop(owner.remove("uid")));
    }
    if !keep.revision {
        metadata.remove("resourceVersion");
    }
    if !keep.managed_fields {
        metadata.remove("managedFields");
    }
    let group = group_of(object["apiVersion"].str()).to_owned();
    let kind = object["kind"].str().to_owned();
    let is_of_server = SERVER_STATUS.contains(&(group.as_str(), kind.as_str()));
    if !keep.status || is_of_server && !keep.uid {
        object.remove("status");
    }
    if !keep.addresses && (group.as_str(), kind.as_str()) == ("", "Service") {
        strip_addresses(object);
    }
    if !keep.uid {
        match (group.as_str(), kind.as_str()) {
            ("", "PersistentVolume") => strip_claim(object),
            ("", "PersistentVolumeClaim") => strip_binding(object),
            ("", "Pod") => strip_placement(object),
            ("", "Secret") => strip_token(object),
            ("batch", "Job") => strip_selector(object),
            _ => {}
        }
    }
}

/// The target allocates cluster IPs and node ports. A headless Service has no address to lose.
fn strip_addresses(service: &mut Value) {
    let Some(spec) = service.get_mut("spec") else {
        return;
    };
    if spec["clusterIP"].str() != "None" {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    spec.remove("healthCheckNodePort");
    let ports = spec.get_mut("ports").map(Value::list_mut);
    let ports = ports.unwrap_or_default();
    ports
        .iter_mut()
        .for_each(|port| drop(port.remove("nodePort")));
}

/// A volume that is bound by name only is bound again; one that is bound to an unknown uid is released, and may be deleted.
fn strip_claim(volume: &mut Value) {
    if let Some(claim) = volume.at_mut("spec.claimRef") {
        claim.remove("uid");
        claim.remove("resourceVersion");
    }
}

/// A claim that says that it is bound to a volume that names another uid is lost.
fn strip_binding(claim: &mut Value) {
    remove_annotation(claim, "pv.kubernetes.io/bind-completed");
    claim.remove("status");
}

/// The node may not exist, and nothing runs yet.
fn strip_placement(pod: &mut Value) {
    if let Some(spec) = pod.get_mut("spec") {
        spec.remove("nodeName");
    }
    pod.remove("status");
}

/// A token of another cluster is invalid, and the uid of another service account gets the Secret deleted. The target issues a
/// new token.
fn strip_token(secret: &mut Value) {
    if secret["type"].str() == "kubernetes.io/service-account-token" {
        remove_annotation(secret, "kubernetes.io/service-account.uid");
        if let Some(data) = secret.get_mut("data") {
            ["token", "ca.crt", "namespace"]
                .iter()
                .for_each(|key| drop(data.remove(key)));
        }
    }
}

/// The API server generates the selector of a Job, with the uid, and rejects one that is given.
fn strip_selector(job: &mut Value) {
    if job["spec"]["manualSelector"].bool() {
        return;
    }
    for path in ["metadata.labels", "spec.template.metadata.labels"] {
        if let Some(labels) = job.at_mut(path) {
            JOB_LABELS
                .iter()
                .for_each(|label| drop(labels.remove(label)));
        }
    }
    if let Some(spec) = job.get_mut("spec") {
        spec.remove("selector");
    }
}

fn remove_annotation(object: &mut Value, key: &str) {
    if let Some(annotations) = object.at_mut("metadata.annotations") {
        annotations.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    #[track_caller]
    fn check(object: &str, keep: &Keep, expected: &str) {
        let mut object = json::parse(object.as_bytes()).unwrap();
        strip(&mut object, keep);
        assert_eq!(json::to_string(&object), expected);
    }

    const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"1","resourceVersion":"2","generation":1,"managedFields":[{}],"creationTimestamp":"2026-01-01T00:00:00Z","ownerReferences":[{"kind":"X","name":"x","uid":"9"}]},"status":{}}"#;

    #[test]
    fn what_users_write_is_left() {
        check(
            CONFIG_MAP,
            &Keep::default(),
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"kind":"X","name":"x"}]}}"#,
        );
    }

    #[test]
    fn everything_can_be_kept() {
        check(CONFIG_MAP, &Keep::ALL, CONFIG_MAP);
    }

    #[test]
    fn a_headless_service_stays_headless() {
        check(
            r#"{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}}"#,
            &Keep::default(),
            r#"{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}}"#,
        );
        check(
            r#"{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9"],"ports":[{"port":80,"nodePort":30000}]}}"#,
            &Keep::default(),
            r#"{"apiVersion":"v1","kind":"Service","metadata":{},"spec":{"ports":[{"port":80}]}}"#,
        );
    }

    #[test]
    fn a_volume_is_bound_to_its_claim_by_name() {
        check(
            r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{},"spec":{"claimRef":{"name":"a","namespace":"b","uid":"1","resourceVersion":"2"}}}"#,
            &Keep::default(),
            r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{},"spec":{"claimRef":{"name":"a","namespace":"b"}}}"#,
        );
    }

    #[test]
    fn the_selector_of_a_job_is_generated_anew_unless_the_user_wrote_it() {
        check(
            r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"labels":{"job-name":"a","app":"b"}},"spec":{"selector":{"matchLabels":{"controller-uid":"1"}},"template":{"metadata":{"labels":{"controller-uid":"1","app":"b"}}}}}"#,
            &Keep::default(),
            r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"labels":{"app":"b"}},"spec":{"template":{"metadata":{"labels":{"app":"b"}}}}}"#,
        );
        let manual = r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{},"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}}}}"#;
        check(manual, &Keep::default(), manual);
    }

    #[test]
    fn a_token_secret_is_emptied() {
        check(
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"1"}},"type":"kubernetes.io/service-account-token","data":{"token":"eA==","ca.crt":"eA==","namespace":"eA==","extra":"eA=="}}"#,
            &Keep::default(),
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"kubernetes.io/service-account.name":"a"}},"type":"kubernetes.io/service-account-token","data":{"extra":"eA=="}}"#,
        );
    }
}
