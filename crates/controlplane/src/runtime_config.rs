//! `--runtime-config`: which of the built-in API versions are served.
//!
//! Kubernetes: apiserver/pkg/server/resourceconfig/helpers.go and server/options/api_enablement.go, whose messages these are.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mizzen_kinds as kinds;
use mizzen_object::Kind;

/// Versions that v1.36 has besides those of our catalogs. Most are off there unless asked for.
const NOT_SERVED: &[&str] = &[
    "admission.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
    "authentication.k8s.io/v1alpha1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "imagepolicy.k8s.io/v1alpha1",
    "internal.apiserver.k8s.io/v1alpha1",
    "node.k8s.io/v1alpha1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "scheduling.k8s.io/v1alpha2",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1beta1",
];

/// Versions that v1.36 serves, in whole, when they are enabled, and we do not: `api/beta=true` and `api/alpha=true` ask for these.
const CAN_BE_ENABLED: &[&str] = &[
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "networking.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1beta2",
    "scheduling.k8s.io/v1alpha2",
    "storage.k8s.io/v1alpha1",
    "storage.k8s.io/v1beta1",
    "storagemigration.k8s.io/v1beta1",
];

/// Groups that the server itself reads and writes.
const NEEDED: &[&str] = &[
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
];

/// One `KEY=BOOL` of `--runtime-config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiSetting {
    scope: SettingScope,
    enabled: bool,
}

/// What a setting is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SettingScope {
    /// `api/all`, `api/ga`, `api/beta`, `api/alpha`.
    Stability(Stability),
    /// `GROUP/VERSION`, and one resource of it or all.
    Version {
        group: String,
        version: String,
        resource: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    All,
    Ga,
    Beta,
    Alpha,
}

impl Stability {
    fn matches(self, version: &str) -> bool {
        match self {
            Stability::All => true,
            Stability::Ga => !version.contains("alpha") && !version.contains("beta"),
            Stability::Beta => version.contains("beta"),
            Stability::Alpha => version.contains("alpha"),
        }
    }
}

impl FromStr for ApiSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<ApiSetting, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, "true"));
        let (key, value) = (key.trim(), value.trim());
        let scope = match (key, key.split('/').collect::<Vec<_>>().as_slice()) {
            ("api/all", _) => SettingScope::Stability(Stability::All),
            ("api/ga", _) => SettingScope::Stability(Stability::Ga),
            ("api/beta", _) => SettingScope::Stability(Stability::Beta),
            ("api/alpha", _) => SettingScope::Stability(Stability::Alpha),
            (_, [group, version, resource @ ..]) if resource.len() < 2 => {
                if let Some(resource) = resource
                    .first()
                    .filter(|name| name.to_lowercase() != **name)
                {
                    return Err(format!(
                        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
                    ));
                }
                let resource = resource.first().map(ToString::to_string);
                SettingScope::Version {
                    group: group.to_string(),
                    version: version.to_string(),
                    resource,
                }
            }
            _ => return Err(format!("runtime-config invalid key {key}")),
        };
        let enabled = match (&scope, value) {
            (_, "true")
            | (SettingScope::Version { .. }, "1" | "t" | "T" | "TRUE" | "True" | "") => true,
            (_, "false") | (SettingScope::Version { .. }, "0" | "f" | "F" | "FALSE" | "False") => {
                false
            }
            (SettingScope::Stability(_), _) => return Err(format!("invalid value {key}={value}")),
            (SettingScope::Version { .. }, _) => {
                let why = format!("strconv.ParseBool: parsing {value:?}: invalid syntax");
                return Err(format!("invalid value of {key}: {value}, err: {why}"));
            }
        };
        Ok(ApiSetting { scope, enabled })
    }
}

impl fmt::Display for ApiSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            SettingScope::Stability(stability) => {
                write!(f, "api/{}", format!("{stability:?}").to_lowercase())?;
            }
            SettingScope::Version {
                group,
                version,
                resource,
            } => {
                write!(f, "{group}/{version}")?;
                resource
                    .iter()
                    .try_for_each(|resource| write!(f, "/{resource}"))?;
            }
        }
        write!(f, "={}", self.enabled)
    }
}

impl ApiSetting {
    fn matches(&self, kind: &Kind) -> bool {
        match &self.scope {
            SettingScope::Stability(stability) => stability.matches(&kind.gvk.version),
            SettingScope::Version {
                group,
                version,
                resource,
            } => {
                kind.gvk.group == *group
                    && kind.gvk.version == *version
                    && resource
                        .as_ref()
                        .is_none_or(|resource| kind.plural == *resource)
            }
        }
    }

    /// In which order settings apply: the more exact one last.
    fn precision(&self) -> (u8, Option<Stability>) {
        match &self.scope {
            SettingScope::Stability(stability) => (0, Some(*stability)),
            SettingScope::Version { resource: None, .. } => (1, None),
            SettingScope::Version { .. } => (2, None),
        }
    }

    /// Whether this server can do as the setting says.
    fn check(&self, kinds: &[Kind]) -> Result<(), String> {
        let version_is_served = kinds.iter().any(|kind| self.matches(kind));
        match &self.scope {
            SettingScope::Stability(stability) if self.enabled => {
                let is_missing =
                    |name: &&&str| stability.matches(name.rsplit('/').next().unwrap_or_default());
                let missing: Vec<&str> =
                    CAN_BE_ENABLED.iter().filter(is_missing).copied().collect();
                match missing.is_empty() {
                    true => Ok(()),
                    false => Err(format!(
                        "{self} asks for versions that are not available: {}",
                        missing.join(", ")
                    )),
                }
            }
            SettingScope::Version { group, version, .. } if !version_is_served => {
                let name = format!("{group}/{version}");
                let is_legacy = is_legacy(group, version);
                let has_group = is_legacy
                    || kinds.iter().any(|kind| kind.gvk.group == *group)
                    || NOT_SERVED.iter().any(|name| {
                        name.strip_prefix(group.as_str())
                            .is_some_and(|rest| rest.starts_with('/'))
                    });
                let is_served = kinds
                    .iter()
                    .any(|kind| kind.gvk.group == *group && kind.gvk.version == *version);
                let has_version = is_legacy || is_served || NOT_SERVED.contains(&name.as_str());
                match (has_group, has_version, self.enabled) {
                    (false, ..) => Err(format!("unknown api groups {name}")),
                    (_, false, _) => {
                        Err(format!("group version {name} that has not been registered"))
                    }
                    (.., false) => Ok(()),
                    _ if is_legacy && !is_served => Err(format!(
                        "{self} asks for a version that Kubernetes has removed; start the server with --legacy-apis to serve it"
                    )),
                    (.., true) => Err(format!(
                        "{self} asks for a version or resource that is not available"
                    )),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Whether `--legacy-apis` serves a version.
pub(crate) fn is_legacy(group: &str, version: &str) -> bool {
    kinds::legacy_kinds()
        .iter()
        .any(|kind| kind.group == group && kind.version == version)
}

/// Removes the verbs of the kinds that `settings` disable, so that they are not served.
pub(crate) fn disable(built_in: &mut kinds::KindCatalog, settings: &[ApiSetting]) {
    for kind in &mut built_in.kinds {
        if disabled_by(kind, settings).is_some() {
            Arc::make_mut(&mut kind.data).verbs.clear();
        }
    }
}

/// The setting that disables a kind. The most exact one that matches decides.
fn disabled_by<'a>(kind: &Kind, settings: &'a [ApiSetting]) -> Option<&'a ApiSetting> {
    let matching = settings.iter().filter(|setting| setting.matches(kind));
    matching
        .max_by_key(|setting| setting.precision())
        .filter(|setting| !setting.enabled)
}

/// Checks that a server can do as `settings` say. With `controllers`, nothing may be disabled that the controllers of this
/// process watch.
pub fn check_runtime_config(
    settings: &[ApiSetting],
    legacy_apis: bool,
    controllers: bool,
) -> Result<(), String> {
    if let [
        ApiSetting {
            scope: SettingScope::Stability(Stability::All),
            enabled: false,
        },
    ] = settings
    {
        return Err("invalid runtime-config with only api/all=false".into());
    }
    let built_in = if legacy_apis {
        kinds::legacy_catalog()
    } else {
        kinds::catalog()
    };
    let served: Vec<Kind> = built_in
        .kinds
        .into_iter()
        .filter(|kind| !kind.verbs.is_empty())
        .collect();
    settings
        .iter()
        .try_for_each(|setting| setting.check(&served))?;
    for kind in &served {
        let is_used = controllers || NEEDED.contains(&&*kind.gvk.group);
        let Some(setting) = disabled_by(kind, settings) else {
            continue;
        };
        if is_used && Stability::Ga.matches(&kind.gvk.version) {
            let user = if controllers {
                "the controllers of `mizzen up` use"
            } else {
                "the server itself uses"
            };
            let (group, version) = (&kind.gvk.group, &kind.gvk.version);
            return Err(format!(
                "{setting} is not supported: {user} {group}/{version}/{}",
                kind.plural
            ));
        }
    }
    Ok(())
}
