//! How plug-ins are set up: the file that Kubernetes calls an AdmissionConfiguration.

use mizzen_object::{Value, Violations};

use super::pod_security::{PodSecurity, Policy};
use super::quota::LimitedResource;

/// What plug-ins are told that have something to be told.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// What is demanded of pods where their namespace says nothing.
    pub pod_security: PodSecurity,
    /// What may only be used where a quota allows it.
    pub limited_resources: Vec<LimitedResource>,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("admission configuration: {0}")]
pub struct ConfigurationError(String);

impl Admission {
    /// Reads an AdmissionConfiguration.
    pub fn read(document: &Value) -> Result<Admission, ConfigurationError> {
        expect(document, "apiserver.config.k8s.io/v1", "AdmissionConfiguration")?;
        let mut admission = Admission::default();
        for plugin in document["plugins"].list() {
            let configuration = &plugin["configuration"];
            match plugin["name"].str() {
                "PodSecurity" => admission.pod_security = read_pod_security(configuration)?,
                "ResourceQuota" => admission.limited_resources = read_limited(configuration)?,
                name => {
                    return Err(ConfigurationError(format!("the plug-in \"{name}\" has nothing to be told")));
                }
            }
        }
        Ok(admission)
    }
}

fn expect(document: &Value, version: &str, kind: &str) -> Result<(), ConfigurationError> {
    if document["apiVersion"].str() == version && document["kind"].str() == kind {
        return Ok(());
    }
    let found = format!("{} of {}", document["kind"].str(), document["apiVersion"].str());
    Err(ConfigurationError(format!("expected the kind {kind} of {version}, found {found}")))
}

fn read_pod_security(document: &Value) -> Result<PodSecurity, ConfigurationError> {
    expect(document, "pod-security.admission.config.k8s.io/v1", "PodSecurityConfiguration")?;
    let mut labels = Value::object();
    for (mode, text) in document["defaults"].entries() {
        labels.set(&format!("pod-security.kubernetes.io/{mode}"), text.clone());
    }
    // What is not said is as if the file were not there; a level that is only enforced is not warned of here.
    for mode in ["enforce", "audit", "warn"] {
        labels.set_default(&format!("pod-security.kubernetes.io/{mode}"), "privileged");
    }
    let mut problems = Violations::default();
    let defaults = Policy::of(&labels, &Policy::default(), &mut problems);
    if let Some(problem) = problems.0.first() {
        return Err(ConfigurationError(problem.to_string()));
    }
    let exempt = |field: &str| texts(&document["exemptions"][field]);
    Ok(PodSecurity {
        defaults,
        users: exempt("usernames"),
        namespaces: exempt("namespaces"),
        runtime_classes: exempt("runtimeClasses"),
    })
}

fn read_limited(document: &Value) -> Result<Vec<LimitedResource>, ConfigurationError> {
    expect(document, "apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration")?;
    let read = |limited: &Value| LimitedResource {
        group: limited["apiGroup"].str().into(),
        resource: limited["resource"].str().into(),
        containing: texts(&limited["matchContains"]),
        scopes: limited["matchScopes"].list().to_vec(),
    };
    let limited: Vec<LimitedResource> = document["limitedResources"].list().iter().map(read).collect();
    match limited.iter().any(|limited| limited.resource.is_empty()) {
        true => Err(ConfigurationError("a limited resource needs a resource".into())),
        false => Ok(limited),
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.list().iter().map(|text| text.str().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::{json, value};

    #[test]
    fn both_plugins_can_be_told() {
        let document = value!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
                { "name": "PodSecurity", "configuration": {
                    "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
                    "defaults": { "enforce": "baseline", "enforce-version": "v1.30" },
                    "exemptions": { "usernames": ["root"], "namespaces": ["kube-system"] } } },
                { "name": "ResourceQuota", "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
                    "limitedResources": [{ "resource": "pods", "matchContains": ["cpu"] }] } }
            ]
        });
        let admission = Admission::read(&document).unwrap();
        let PodSecurity { defaults, users, namespaces, .. } = admission.pod_security;
        assert_eq!(format!("{} {}", defaults.enforce, defaults.warn), "baseline:v1.30 privileged:latest");
        assert_eq!((users, namespaces), (vec!["root".to_string()], vec!["kube-system".to_string()]));
        assert_eq!(admission.limited_resources[0].containing, ["cpu"]);
    }

    #[track_caller]
    fn refused(plugin: &str, expected: &str) {
        let text = format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{plugin}]}}"#
        );
        let error = Admission::read(&json::parse(text.as_bytes()).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), format!("admission configuration: {expected}"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        refused(r#"{"name":"Nobody"}"#, "the plug-in \"Nobody\" has nothing to be told");
        refused(
            r#"{"name":"PodSecurity","configuration":{"kind":"X","apiVersion":"v1"}}"#,
            "expected the kind PodSecurityConfiguration of pod-security.admission.config.k8s.io/v1, found X of v1",
        );
        refused(
            r#"{"name":"PodSecurity","configuration":{"kind":"PodSecurityConfiguration","apiVersion":"pod-security.admission.config.k8s.io/v1","defaults":{"enforce":"hard"}}}"#,
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"hard\": must be one of privileged, baseline, restricted",
        );
    }
}
