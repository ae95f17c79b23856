//! How plug-ins are set up: the file that Kubernetes calls an AdmissionConfiguration.

use std::path::Path;
use std::sync::Arc;

use mizzen_object::{Value, Violations, yaml};

use super::event_rate_limit::EventRateLimit;
use super::image_policy::ImagePolicy;
use super::pod_node_selector::NodeSelectors;
use super::pod_security::{PodSecurity, Policy};
use super::pod_tolerations::PodTolerations;
use super::quota::LimitedResource;
use super::toleration::TolerationSeconds;

/// What plug-ins are told that have something to be told.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// What is demanded of pods where their namespace says nothing.
    pub pod_security: PodSecurity,
    /// What may only be used where a quota allows it.
    pub limited_resources: Vec<LimitedResource>,
    /// How many events may be written.
    pub event_rate_limit: Option<Arc<EventRateLimit>>,
    /// The server that decides which images may run.
    pub image_policy: Option<Arc<ImagePolicy>>,
    /// Which nodes the pods of a namespace run on.
    pub node_selectors: NodeSelectors,
    /// Which taints pods tolerate where their namespace says nothing.
    pub pod_tolerations: PodTolerations,
    /// How long pods stay on nodes that are lost where they do not say.
    pub toleration_seconds: TolerationSeconds,
}

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("admission configuration: {0}")]
pub struct ConfigurationError(String);

/// Kubernetes: plug-ins whose configuration may be the whole file, by the one key that it has (admission/config.go).
const LEGACY: [(&str, &str); 2] = [
    ("ImagePolicyWebhook", "imagePolicy"),
    ("PodNodeSelector", "podNodeSelectorPluginConfig"),
];

impl Admission {
    /// Reads an AdmissionConfiguration; files that it names are below `base` unless their paths are absolute.
    pub fn read(document: &Value, base: &Path) -> Result<Admission, ConfigurationError> {
        let mut admission = Admission::default();
        let legacy = LEGACY.iter().filter(|(_, key)| document.get(key).is_some());
        if document["kind"].is_null() && legacy.clone().next().is_some() {
            legacy
                .clone()
                .try_for_each(|(name, _)| admission.configure(name, document))?;
            return Ok(admission);
        }
        if document["apiVersion"].str() != "apiserver.k8s.io/v1alpha1" {
            expect(
                document,
                "apiserver.config.k8s.io/v1",
                "AdmissionConfiguration",
            )?;
        }
        for plugin in document["plugins"].list() {
            let file = plugin["path"].str();
            let configuration = match &plugin["configuration"] {
                Value::Null if !file.is_empty() => &read_file(&base.join(file))?,
                configuration => configuration,
            };
            admission.configure(plugin["name"].str(), configuration)?;
        }
        Ok(admission)
    }

    fn configure(&mut self, plugin: &str, configuration: &Value) -> Result<(), ConfigurationError> {
        let invalid = |violations: Violations| {
            let problems = violations.in_one().unwrap_or_default();
            ConfigurationError(format!("{plugin}: {problems}"))
        };
        match plugin {
            "PodSecurity" => self.pod_security = read_pod_security(configuration)?,
            "ResourceQuota" => self.limited_resources = read_limited(configuration)?,
            "EventRateLimit" => {
                expect(
                    configuration,
                    "eventratelimit.admission.k8s.io/v1alpha1",
                    "Configuration",
                )?;
                let limits = EventRateLimit::read(configuration).map_err(invalid)?;
                self.event_rate_limit = Some(Arc::new(limits));
            }
            "PodTolerationRestriction" => {
                expect(
                    configuration,
                    "podtolerationrestriction.admission.k8s.io/v1alpha1",
                    "Configuration",
                )?;
                self.pod_tolerations = PodTolerations::read(configuration).map_err(invalid)?;
            }
            "PodNodeSelector" => self.node_selectors = NodeSelectors::read(configuration),
            "ImagePolicyWebhook" => {
                let policy = ImagePolicy::read(configuration);
                let policy =
                    policy.map_err(|why| ConfigurationError(format!("{plugin}: {why}")))?;
                self.image_policy = Some(Arc::new(policy));
            }
            name => {
                return Err(ConfigurationError(format!(
                    "the plug-in \"{name}\" has nothing to be told"
                )));
            }
        }
        Ok(())
    }
}

fn read_file(file: &Path) -> Result<Value, ConfigurationError> {
    let fail = |why: String| ConfigurationError(format!("{}: {why}", file.display()));
    let text = std::fs::read(file).map_err(|error| fail(error.to_string()))?;
    yaml::read(&text)
        .map(|document| document.value)
        .map_err(|error| fail(error.to_string()))
}

fn expect(document: &Value, version: &str, kind: &str) -> Result<(), ConfigurationError> {
    if document["apiVersion"].str() == version && document["kind"].str() == kind {
        return Ok(());
    }
    let found = format!(
        "{} of {}",
        document["kind"].str(),
        document["apiVersion"].str()
    );
    Err(ConfigurationError(format!(
        "expected the kind {kind} of {version}, found {found}"
    )))
}

fn read_pod_security(document: &Value) -> Result<PodSecurity, ConfigurationError> {
    expect(
        document,
        "pod-security.admission.config.k8s.io/v1",
        "PodSecurityConfiguration",
    )?;
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
    expect(
        document,
        "apiserver.config.k8s.io/v1",
        "ResourceQuotaConfiguration",
    )?;
    let read = |limited: &Value| LimitedResource {
        group: limited["apiGroup"].str().into(),
        resource: limited["resource"].str().into(),
        containing: texts(&limited["matchContains"]),
        scopes: limited["matchScopes"].list().to_vec(),
    };
    let limited: Vec<LimitedResource> = document["limitedResources"]
        .list()
        .iter()
        .map(read)
        .collect();
    match limited.iter().any(|limited| limited.resource.is_empty()) {
        true => Err(ConfigurationError(
            "a limited resource needs a resource".into(),
        )),
        false => Ok(limited),
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.list()
        .iter()
        .map(|text| text.str().to_string())
        .collect()
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
        let admission = Admission::read(&document, Path::new("")).unwrap();
        let PodSecurity {
            defaults,
            users,
            namespaces,
            ..
        } = admission.pod_security;
        assert_eq!(
            format!("{} {}", defaults.enforce, defaults.warn),
            "baseline:v1.30 privileged:latest"
        );
        assert_eq!(
            (users, namespaces),
            (vec!["root".to_string()], vec!["kube-system".to_string()])
        );
        assert_eq!(admission.limited_resources[0].containing, ["cpu"]);
    }

    #[test]
    fn plugins_that_are_off_can_be_told_too_in_the_same_file_or_in_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("limits.yaml");
        let limits = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [{type: Server, qps: 5, burst: 10}]\n";
        std::fs::write(&file, limits).unwrap();
        let document = value!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
                { "name": "EventRateLimit", "path": "limits.yaml" },
                { "name": "PodNodeSelector", "configuration": { "podNodeSelectorPluginConfig": { "ns": "a=b" } } },
                { "name": "PodTolerationRestriction", "configuration": {
                    "apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration",
                    "default": [{ "key": "a", "operator": "Exists" }] } }
            ]
        });
        let admission = Admission::read(&document, directory.path()).unwrap();
        let limits = admission.event_rate_limit.unwrap();
        assert_eq!(
            format!("{limits:?}"),
            "EventRateLimit([Server: 5 qps, burst 10])"
        );
        let selectors = value!({ "podNodeSelectorPluginConfig": { "ns": "a=b" } });
        assert_eq!(admission.node_selectors, NodeSelectors::read(&selectors));
        let legacy = Admission::read(&selectors, directory.path()).unwrap();
        assert_eq!(legacy.node_selectors, NodeSelectors::read(&selectors));
        assert_ne!(admission.pod_tolerations, PodTolerations::default());
    }

    #[track_caller]
    fn refused(plugin: &str, expected: &str) {
        let text = format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{plugin}]}}"#
        );
        let error =
            Admission::read(&json::parse(text.as_bytes()).unwrap(), Path::new("")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("admission configuration: {expected}")
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        refused(
            r#"{"name":"EventRateLimit","configuration":{"kind":"Configuration","apiVersion":"eventratelimit.admission.k8s.io/v1alpha1"}}"#,
            "EventRateLimit: limits: Invalid value: null: must not be empty",
        );
        refused(
            r#"{"name":"PodTolerationRestriction","configuration":{"kind":"Configuration","apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","whitelist":[{"key":"a","operator":"Odd"}]}}"#,
            "PodTolerationRestriction: podtolerationrestriction.whitelist[0].operator: Unsupported value: \"Odd\": supported values: \"Equal\", \"Exists\"",
        );
        refused(
            r#"{"name":"Nobody"}"#,
            "the plug-in \"Nobody\" has nothing to be told",
        );
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
