//! The configuration of plug-ins: an AdmissionConfiguration.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use mizzen_object::Violations;
use mizzen_object::config_file::{ConfigFileError, ConfigScheme};
use mizzen_object::schema::{self, Schemas};
use mizzen_value::{Value, json, yaml};

use super::event_rate_limit::EventRateLimit;
use super::image_policy::ImagePolicy;
use super::plugins::Plugins;
use super::pod_node_selector::NodeSelectors;
use super::pod_security::{NamespacePolicy, PodSecurity};
use super::pod_tolerations::PodTolerations;
use super::quota::LimitedResource;
use super::toleration::TolerationSeconds;

/// The configuration of the plug-ins that have one.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// PodSecurity.
    pub pod_security: PodSecurity,
    /// ResourceQuota: resources that need a quota.
    pub limited_resources: Vec<LimitedResource>,
    /// EventRateLimit.
    pub event_rate_limit: Option<Arc<EventRateLimit>>,
    /// ImagePolicyWebhook.
    pub image_policy: Option<Arc<ImagePolicy>>,
    /// PodNodeSelector.
    pub node_selectors: NodeSelectors,
    /// PodTolerationRestriction.
    pub pod_tolerations: PodTolerations,
    /// DefaultTolerationSeconds.
    pub toleration_seconds: TolerationSeconds,
}

/// Why a configuration is invalid, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdmissionConfigurationError(String);

/// The configuration kinds of upstream's plug-ins, and the name of their scheme in errors.
type KnownKinds = (&'static str, &'static [(&'static str, &'static str)]);

const ADMISSION: KnownKinds = (
    "pkg/server/options/admission.go:51",
    &[
        ("apiserver.config.k8s.io/v1", "AdmissionConfiguration"),
        ("apiserver.k8s.io/v1alpha1", "AdmissionConfiguration"),
    ],
);
const POD_SECURITY: KnownKinds = (
    "k8s.io/pod-security-admission/admission/api/scheme/scheme.go:31",
    &[
        (
            "pod-security.admission.config.k8s.io/v1",
            "PodSecurityConfiguration",
        ),
        (
            "pod-security.admission.config.k8s.io/v1beta1",
            "PodSecurityConfiguration",
        ),
        (
            "pod-security.admission.config.k8s.io/v1alpha1",
            "PodSecurityConfiguration",
        ),
    ],
);
const RESOURCE_QUOTA: KnownKinds = (
    "pkg/admission/plugin/resourcequota/config.go:31",
    &[
        ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ],
);
const EVENT_RATE_LIMIT: KnownKinds = (
    "pkg/admission/eventratelimit/config.go:31",
    &[("eventratelimit.admission.k8s.io/v1alpha1", "Configuration")],
);
const POD_TOLERATIONS: KnownKinds = (
    "pkg/admission/podtolerationrestriction/config.go:32",
    &[(
        "podtolerationrestriction.admission.k8s.io/v1alpha1",
        "Configuration",
    )],
);

/// Kubernetes: plug-ins whose configuration may be the whole file, by the one key that it has (admission/config.go).
const LEGACY: [(&str, &str); 2] = [
    ("ImagePolicyWebhook", "imagePolicy"),
    ("PodNodeSelector", "podNodeSelectorPluginConfig"),
];

impl Admission {
    /// Reads an AdmissionConfiguration; files that it names are below `base` unless their paths are absolute.
    pub fn read(text: &[u8], base: &Path) -> Result<Admission, AdmissionConfigurationError> {
        let mut admission = Admission::default();
        let rejected = |why: &dyn fmt::Display| {
            AdmissionConfigurationError(format!("failed to read plugin config: {why}"))
        };
        let document = match decode_strictly(ADMISSION, text) {
            Ok(document) => document,
            Err(
                error @ (ConfigFileError::Missing { .. } | ConfigFileError::NotRegistered { .. }),
            ) => {
                let document = yaml::read(text).map_err(|error| rejected(&error))?.value;
                let mut legacy = LEGACY
                    .iter()
                    .filter(|(_, key)| document.get(key).is_some())
                    .peekable();
                if legacy.peek().is_none() {
                    return Err(rejected(&error));
                }
                legacy.try_for_each(|(name, _)| admission.configure(name, text))?;
                return Ok(admission);
            }
            Err(error) => return Err(rejected(&error)),
        };
        for plugin in document["plugins"].list() {
            let name = plugin["name"].str();
            let text = match (&plugin["configuration"], plugin["path"].str()) {
                (Value::Null, "") => Vec::new(),
                (Value::Null, file) => {
                    let file = base.join(file);
                    std::fs::read(&file)
                        .map_err(|error| rejected(&format!("{}: {error}", file.display())))?
                }
                (configuration, _) => json::to_string(configuration).into_bytes(),
            };
            admission.configure(name, &text)?;
        }
        Ok(admission)
    }

    /// Configures one plug-in. Without a text it has its defaults.
    fn configure(&mut self, plugin: &str, text: &[u8]) -> Result<(), AdmissionConfigurationError> {
        let rejected = |why: String| {
            AdmissionConfigurationError(format!(
                "couldn't init admission plugin {}: {why}",
                json::quote(plugin)
            ))
        };
        let takes_configuration = match plugin {
            "PodSecurity"
            | "ResourceQuota"
            | "EventRateLimit"
            | "PodTolerationRestriction"
            | "PodNodeSelector"
            | "ImagePolicyWebhook" => true,
            name if Plugins::knows(name) => false,
            name => {
                return Err(AdmissionConfigurationError(format!(
                    "failed to read plugin config: plugin {} is unknown",
                    json::quote(name)
                )));
            }
        };
        if text.is_empty() {
            return Ok(());
        }
        if !takes_configuration {
            return Err(rejected(
                "it takes no configuration here; remove its configuration".into(),
            ));
        }
        self.read_plugin(plugin, text).map_err(rejected)
    }

    fn read_plugin(&mut self, plugin: &str, text: &[u8]) -> Result<(), String> {
        let strictly = |kinds| decode_strictly(kinds, text).map_err(|error| error.to_string());
        // Kubernetes: these two decode leniently.
        let leniently = |kinds| match scheme(kinds).decode_leniently(text) {
            Ok(decoded) => Ok(decoded.value),
            Err(error) => Err(error.to_string()),
        };
        let unversioned = || match yaml::read(text) {
            Ok(document) => Ok(document.value),
            Err(error) => Err(error.to_string()),
        };
        let invalid = |violations: Violations| violations.aggregate().unwrap_or_default();
        match plugin {
            "PodSecurity" => self.pod_security = PodSecurity::parse(&strictly(POD_SECURITY)?)?,
            "ResourceQuota" => {
                self.limited_resources = LimitedResource::parse_all(&strictly(RESOURCE_QUOTA)?)?
            }
            "EventRateLimit" => {
                let limits = EventRateLimit::read(&leniently(EVENT_RATE_LIMIT)?);
                self.event_rate_limit = Some(Arc::new(limits.map_err(invalid)?));
            }
            "PodTolerationRestriction" => {
                let tolerations = PodTolerations::read(&leniently(POD_TOLERATIONS)?);
                self.pod_tolerations = tolerations.map_err(invalid)?;
            }
            "PodNodeSelector" => self.node_selectors = NodeSelectors::read(&unversioned()?),
            _ => self.image_policy = Some(Arc::new(ImagePolicy::read(&unversioned()?)?)),
        }
        Ok(())
    }
}

fn scheme((name, kinds): KnownKinds) -> ConfigScheme<'static> {
    static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
    let file = ("configuration.kinds", include_str!("configuration.kinds"));
    let types = SCHEMAS.get_or_init(|| schema::parse([file]).expect("the file is ours"));
    ConfigScheme { name, kinds, types }
}

fn decode_strictly(kinds: KnownKinds, text: &[u8]) -> Result<Value, ConfigFileError> {
    scheme(kinds).decode(text)
}

impl PodSecurity {
    fn parse(document: &Value) -> Result<PodSecurity, String> {
        let mut labels = Value::object();
        let defaults = document["defaults"].entries();
        for (mode, text) in defaults.filter(|(_, text)| !text.is_empty()) {
            labels.set(&format!("pod-security.kubernetes.io/{mode}"), text.clone());
        }
        // Defaults apply as without the file; `enforce` does not imply `warn` here.
        for mode in ["enforce", "audit", "warn"] {
            labels.set_default(&format!("pod-security.kubernetes.io/{mode}"), "privileged");
        }
        let mut problems = Violations::default();
        let defaults =
            NamespacePolicy::from_labels(&labels, &NamespacePolicy::default(), &mut problems);
        if let Some(problem) = problems.0.first() {
            return Err(problem.to_string());
        }
        let exempt = |field: &str| texts(&document["exemptions"][field]);
        Ok(PodSecurity {
            defaults,
            users: exempt("usernames"),
            namespaces: exempt("namespaces"),
            runtime_classes: exempt("runtimeClasses"),
        })
    }
}

impl LimitedResource {
    fn parse_all(document: &Value) -> Result<Vec<LimitedResource>, String> {
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
            true => Err("a limited resource needs a resource".into()),
            false => Ok(limited),
        }
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
    use mizzen_value::value;

    fn read(document: &Value, base: &Path) -> Result<Admission, AdmissionConfigurationError> {
        Admission::read(json::to_string(document).as_bytes(), base)
    }

    #[test]
    fn both_plugins_can_be_configured() {
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
        let admission = read(&document, Path::new("")).unwrap();
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
    fn disabled_plugins_can_be_configured_in_the_same_file_or_in_separate_ones() {
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
        let admission = read(&document, directory.path()).unwrap();
        let limits = admission.event_rate_limit.unwrap();
        assert_eq!(
            format!("{limits:?}"),
            "EventRateLimit([Server: 5 qps, burst 10])"
        );
        let selectors = value!({ "podNodeSelectorPluginConfig": { "ns": "a=b" } });
        assert_eq!(admission.node_selectors, NodeSelectors::read(&selectors));
        let legacy = read(&selectors, directory.path()).unwrap();
        assert_eq!(legacy.node_selectors, NodeSelectors::read(&selectors));
        assert_ne!(admission.pod_tolerations, PodTolerations::default());
    }

    #[track_caller]
    fn rejected(plugin: &str, expected: &str) {
        let text = format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{plugin}]}}"#
        );
        let error = Admission::read(text.as_bytes(), Path::new("")).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let invalid = |plugin: &str, configuration: &str, expected: &str| {
            rejected(
                &format!(r#"{{"name":"{plugin}","configuration":{configuration}}}"#),
                &format!("couldn't init admission plugin \"{plugin}\": {expected}"),
            );
        };
        invalid(
            "EventRateLimit",
            r#"{"kind":"Configuration","apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","limits":null}"#,
            "limits: Invalid value: null: must not be empty",
        );
        invalid(
            "PodTolerationRestriction",
            r#"{"kind":"Configuration","apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","whitelist":[{"key":"a","operator":"Odd"}]}"#,
            "podtolerationrestriction.whitelist[0].operator: Unsupported value: \"Odd\": supported values: \"Equal\", \"Exists\"",
        );
        invalid(
            "PodSecurity",
            r#"{"kind":"X","apiVersion":"v1"}"#,
            "no kind \"X\" is registered for version \"v1\" in scheme \"k8s.io/pod-security-admission/admission/api/scheme/scheme.go:31\"",
        );
        invalid(
            "PodSecurity",
            r#"{"kind":"PodSecurityConfiguration","apiVersion":"pod-security.admission.config.k8s.io/v1","defaults":{"enforce":"hard"}}"#,
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"hard\": must be one of privileged, baseline, restricted",
        );
        invalid(
            "ResourceQuota",
            r#"{"kind":"Configuration","apiVersion":"resourcequota.admission.k8s.io/v1alpha1","limitedResources":[{"resources":"pods"}]}"#,
            "strict decoding error: unknown field \"limitedResources[0].resources\"",
        );
        rejected(
            r#"{"name":"PodSecurity","config":{}}"#,
            "failed to read plugin config: strict decoding error: unknown field \"plugins[0].config\"",
        );
    }

    #[test]
    fn a_plugin_that_is_unknown_or_takes_no_configuration_is_refused() {
        rejected(
            r#"{"name":"Nobody"}"#,
            "failed to read plugin config: plugin \"Nobody\" is unknown",
        );
        rejected(
            r#"{"name":"MutatingAdmissionWebhook","configuration":{"kind":"WebhookAdmissionConfiguration"}}"#,
            "couldn't init admission plugin \"MutatingAdmissionWebhook\": it takes no configuration here; remove its configuration",
        );
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: LimitRanger, path: ''}]";
        assert!(Admission::read(text.as_bytes(), Path::new("")).is_ok());
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let rejected = |text: &str, expected: &str| {
            let error = Admission::read(text.as_bytes(), Path::new("")).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("failed to read plugin config: {expected}")
            );
        };
        rejected("plugins: []", "Object 'Kind' is missing in 'plugins: []'");
        rejected(
            "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1alpha1",
            "no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v1alpha1\" in scheme \
             \"pkg/server/options/admission.go:51\"",
        );
    }
}
