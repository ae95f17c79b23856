//! Which plug-ins are there, in which order do they have their say, and which of them are on?
//!
//! The table has every plug-in that Kubernetes knows, in its order, so that the same names can be given on the
//! command line. Most are enabled by default. Those of a feature gate that is off have nothing to do, and
//! cannot be turned on.

use mizzen_object::Status;
use mizzen_registry::Future;
use mizzen_value::Value;

use super::{
    Admission, Attributes, always_pull_images, anti_affinity, certificate, check_with_policies,
    check_with_webhooks, default_class, event_rate_limit, extended_resource_toleration,
    external_ips, image_policy, limits, namespace, node_restriction, owner_references,
    pod_node_selector, pod_resize, pod_security, pod_tolerations, priority, protection, quota,
    runtime_class, service_account, taint, toleration, topology, volume_resize,
};

/// Something that changes what is written, or refuses it.
#[derive(Clone, Copy)]
pub(super) enum Mutate {
    Nothing,
    Now(fn(&Attributes, &mut Value) -> Result<(), Status>),
    /// It asks somebody else, or waits; but only where a look at the write says that it has to.
    Later {
        concerns: fn(&Attributes) -> bool,
        mutate: MutateLater,
    },
}

/// Something that only lets through or refuses.
#[derive(Clone, Copy)]
pub(super) enum Validate {
    Nothing,
    Now(fn(&Attributes, &Value) -> Result<(), Status>),
    /// It asks somebody else, or waits; but only where a look at the write says that it has to.
    Later {
        concerns: fn(&Attributes) -> bool,
        validate: ValidateLater,
    },
}

/// Changes an object, or refuses it, when it has asked or waited.
pub(super) type MutateLater =
    for<'a> fn(&'a Attributes<'a>, &'a mut Value) -> Future<'a, Result<(), Status>>;
/// Refuses an object, or does not, when it has asked or waited.
pub(super) type ValidateLater =
    for<'a> fn(&'a Attributes<'a>, &'a Value) -> Future<'a, Result<(), Status>>;

/// One row of the table.
pub(super) struct Plugin {
    pub name: &'static str,
    pub state: State,
    pub mutate: Mutate,
    pub validate: Validate,
}

/// What happens with a plug-in of which nobody says anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    On,
    Off,
    /// Its kinds belong to a feature gate that is off in v1.36, and are not served.
    Gated,
}

impl Plugin {
    const fn on(name: &'static str, mutate: Mutate, validate: Validate) -> Plugin {
        Plugin {
            name,
            state: State::On,
            mutate,
            validate,
        }
    }

    const fn off(name: &'static str, mutate: Mutate, validate: Validate) -> Plugin {
        Plugin {
            name,
            state: State::Off,
            mutate,
            validate,
        }
    }

    const fn gated(name: &'static str) -> Plugin {
        Plugin {
            name,
            state: State::Gated,
            mutate: Mutate::Nothing,
            validate: Validate::Nothing,
        }
    }
}

const ALWAYS_ADMIT: &str = "AlwaysAdmit";
pub(super) const ALWAYS_DENY: &str = "AlwaysDeny";
pub(super) const NAMESPACE_LIFECYCLE: &str = "NamespaceLifecycle";
pub(super) const NAMESPACE_EXISTS: &str = "NamespaceExists";
const EVENT_RATE_LIMIT: &str = "EventRateLimit";
const IMAGE_POLICY_WEBHOOK: &str = "ImagePolicyWebhook";
const SERVICE_ACCOUNT: &str = "ServiceAccount";
pub(super) const NODE_RESTRICTION: &str = "NodeRestriction";
pub(super) const MUTATING_POLICY: &str = "MutatingAdmissionPolicy";
pub(super) const VALIDATING_POLICY: &str = "ValidatingAdmissionPolicy";
pub(super) const MUTATING_WEBHOOK: &str = "MutatingAdmissionWebhook";
pub(super) const VALIDATING_WEBHOOK: &str = "ValidatingAdmissionWebhook";

/// Every plug-in, in the order in which they have their say.
static TABLE: &[Plugin] = {
    use Mutate::Now as change;
    use Validate::Now as check;
    const SAME: Mutate = Mutate::Nothing;
    const ANY: Validate = Validate::Nothing;
    &[
        Plugin::off(ALWAYS_ADMIT, SAME, ANY),
        Plugin::off(
            "NamespaceAutoProvision",
            Mutate::Later {
                concerns: namespace::is_missing,
                mutate: namespace::provision,
            },
            ANY,
        ),
        Plugin::on(NAMESPACE_LIFECYCLE, change(namespace::admit), ANY),
        Plugin::off(
            NAMESPACE_EXISTS,
            SAME,
            check(|attributes, _| namespace::check_exists(attributes)),
        ),
        Plugin::off(
            "LimitPodHardAntiAffinityTopology",
            SAME,
            check(anti_affinity::check),
        ),
        Plugin::on("LimitRanger", change(limits::admit), check(limits::check)),
        Plugin::on(
            SERVICE_ACCOUNT,
            Mutate::Later {
                concerns: service_account::concerns,
                mutate: service_account::admit,
            },
            check(service_account::check),
        ),
        Plugin::on(
            NODE_RESTRICTION,
            Mutate::Later {
                concerns: node_restriction::concerns,
                mutate: node_restriction::admit,
            },
            ANY,
        ),
        Plugin::on("TaintNodesByCondition", change(taint::admit), ANY),
        Plugin::off(
            "AlwaysPullImages",
            change(always_pull_images::admit),
            check(always_pull_images::check),
        ),
        Plugin::off(
            IMAGE_POLICY_WEBHOOK,
            SAME,
            Validate::Later {
                concerns: image_policy::concerns,
                validate: image_policy::check,
            },
        ),
        Plugin::on("PodSecurity", SAME, check(pod_security::check)),
        Plugin::off(
            "PodNodeSelector",
            change(pod_node_selector::admit),
            check(pod_node_selector::check),
        ),
        Plugin::on("Priority", change(priority::admit), check(priority::check)),
        Plugin::on("DefaultTolerationSeconds", change(toleration::admit), ANY),
        Plugin::off(
            "PodTolerationRestriction",
            change(pod_tolerations::admit),
            check(pod_tolerations::check),
        ),
        Plugin::off(EVENT_RATE_LIMIT, SAME, check(event_rate_limit::check)),
        Plugin::off(
            "ExtendedResourceToleration",
            change(extended_resource_toleration::admit),
            ANY,
        ),
        Plugin::on(
            "DefaultStorageClass",
            change(default_class::admit_claim),
            ANY,
        ),
        Plugin::on(
            "StorageObjectInUseProtection",
            change(protection::admit),
            ANY,
        ),
        Plugin::gated("PodGroupProtection"),
        Plugin::off(
            "OwnerReferencesPermissionEnforcement",
            SAME,
            Validate::Later {
                concerns: owner_references::concerns,
                validate: owner_references::check,
            },
        ),
        Plugin::on(
            "PersistentVolumeClaimResize",
            SAME,
            check(volume_resize::check),
        ),
        Plugin::on(
            "RuntimeClass",
            change(runtime_class::admit),
            check(runtime_class::check),
        ),
        Plugin::on(
            "CertificateApproval",
            SAME,
            Validate::Later {
                concerns: certificate::is_approval,
                validate: certificate::check_approval,
            },
        ),
        Plugin::on(
            "CertificateSigning",
            SAME,
            Validate::Later {
                concerns: certificate::is_status,
                validate: certificate::check_signing,
            },
        ),
        Plugin::gated("ClusterTrustBundleAttest"),
        Plugin::on(
            "CertificateSubjectRestriction",
            SAME,
            check(certificate::check_subject),
        ),
        Plugin::on(
            "DefaultIngressClass",
            change(default_class::admit_ingress),
            ANY,
        ),
        Plugin::off("DenyServiceExternalIPs", SAME, check(external_ips::check)),
        Plugin::on("PodTopologyLabels", change(topology::admit), ANY),
        Plugin::gated("PodGroupWorkloadExists"),
        Plugin::on(
            "NodeDeclaredFeatureValidator",
            SAME,
            check(pod_resize::check_features),
        ),
        Plugin::gated("JobValidation"),
        Plugin::on("PodResizeValidator", SAME, check(pod_resize::check_size)),
        // Those that ask others come last: they see what all before them have made of the object.
        // Called by `admit`, which lets everybody look again at what these two have changed.
        Plugin::on(MUTATING_POLICY, SAME, ANY),
        Plugin::on(MUTATING_WEBHOOK, SAME, ANY),
        Plugin::on(
            VALIDATING_POLICY,
            SAME,
            Validate::Later {
                concerns: |_| true,
                validate: check_with_policies,
            },
        ),
        Plugin::on(
            VALIDATING_WEBHOOK,
            SAME,
            Validate::Later {
                concerns: |_| true,
                validate: check_with_webhooks,
            },
        ),
        // After everybody else: what it counts must not be refused any more.
        Plugin::on(
            "ResourceQuota",
            SAME,
            Validate::Later {
                concerns: quota::concerns,
                validate: quota::check,
            },
        ),
        // Called by `admit` after policies and webhooks, and for deletions.
        Plugin::off(ALWAYS_DENY, SAME, ANY),
    ]
};

/// Those that only a whole control plane has on unless somebody asks for them.
const WHOLE: [&str; 2] = [SERVICE_ACCOUNT, NODE_RESTRICTION];

/// The plug-ins that are on.
#[derive(Clone)]
pub struct Plugins(Vec<&'static Plugin>);

/// Why a plug-in cannot be turned on or off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// Kubernetes does not have it. In upstream's words (server/options/admission.go).
    #[error("{flag} plugin \"{name}\" is unknown")]
    Unknown {
        /// The flag that names it.
        flag: &'static str,
        /// Its name.
        name: String,
    },
    /// Its feature gate is off.
    #[error(
        "enable-admission-plugins plugin \"{name}\" would do nothing: its feature gate is off in v1.36 and its kinds are \
         not served; remove it"
    )]
    Gated {
        /// What was asked for.
        name: String,
    },
    /// It is turned on and off. Kubernetes: in upstream's words (server/options/admission.go).
    #[error("[{names}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap {
        /// The plug-ins.
        names: String,
    },
    /// Several of these, as upstream joins them.
    #[error("{0}")]
    Several(String),
    /// It is on without the configuration that it needs.
    #[error("couldn't init admission plugin \"{name}\": {why}")]
    Unconfigured {
        /// The plug-in.
        name: &'static str,
        /// What is missing, as upstream says it.
        why: &'static str,
    },
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins(
            TABLE
                .iter()
                .filter(|plugin| plugin.state == State::On)
                .collect(),
        )
    }
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|plugin| plugin.name))
            .finish()
    }
}

impl Plugins {
    /// Those of an API server that stands alone: nobody makes service accounts there, and nodes are whoever comes.
    pub fn alone() -> Plugins {
        let mut plugins = Plugins::default();
        plugins.0.retain(|plugin| !WHOLE.contains(&plugin.name));
        plugins
    }

    /// None: the server has none of the objects that they are about.
    pub fn none() -> Plugins {
        Plugins(Vec::new())
    }

    /// Turns one on.
    pub fn enable(&mut self, name: &str) -> Result<(), PluginError> {
        let plugin = find(name).ok_or_else(|| PluginError::Unknown {
            flag: "enable-admission-plugins",
            name: name.into(),
        })?;
        if plugin.state == State::Gated {
            return Err(PluginError::Gated { name: name.into() });
        }
        if [ALWAYS_ADMIT, ALWAYS_DENY].contains(&name) {
            tracing::warn!(
                "{name} admission controller is deprecated. Please remove this controller from your \
                 configuration files and scripts."
            );
        }
        self.0 = TABLE
            .iter()
            .filter(|known| known.name == name || self.has(known.name))
            .collect();
        Ok(())
    }

    /// Turns one off.
    pub fn disable(&mut self, name: &str) -> Result<(), PluginError> {
        if !Plugins::knows(name) {
            return Err(PluginError::Unknown {
                flag: "disable-admission-plugins",
                name: name.into(),
            });
        }
        self.0.retain(|plugin| plugin.name != name);
        Ok(())
    }

    /// Rejects a plug-in that is on and cannot work with this configuration.
    pub fn check(&self, admission: &Admission) -> Result<(), PluginError> {
        let needed = [
            (
                IMAGE_POLICY_WEBHOOK,
                admission.image_policy.is_some(),
                "no config specified",
            ),
            (
                EVENT_RATE_LIMIT,
                admission.event_rate_limit.is_some(),
                "limits: Invalid value: null: must not be empty",
            ),
        ];
        match needed
            .into_iter()
            .find(|(name, is_configured, _)| self.has(name) && !is_configured)
        {
            Some((name, _, why)) => Err(PluginError::Unconfigured { name, why }),
            None => Ok(()),
        }
    }

    /// Whether Kubernetes has a plug-in of this name.
    pub(super) fn knows(name: &str) -> bool {
        find(name).is_some()
    }

    /// Whether one is on.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|plugin| plugin.name == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Plugin> {
        self.0.iter().copied()
    }
}

fn find(name: &str) -> Option<&'static Plugin> {
    TABLE.iter().find(|plugin| plugin.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_is_turned_on_takes_its_place_in_the_order() {
        let mut plugins = Plugins::alone();
        for name in WHOLE {
            assert!(!plugins.has(name));
            plugins.enable(name).unwrap();
        }
        assert_eq!(format!("{plugins:?}"), format!("{:?}", Plugins::default()));
    }

    #[test]
    fn a_plugin_can_be_turned_off() {
        let mut plugins = Plugins::default();
        plugins.disable("Priority").unwrap();
        assert!(!plugins.has("Priority") && plugins.has("LimitRanger"));
    }

    #[test]
    fn names_that_nobody_knows_are_refused() {
        let refused = |outcome: Result<(), PluginError>| outcome.unwrap_err().to_string();
        assert_eq!(
            refused(Plugins::default().disable("Nonsense")),
            "disable-admission-plugins plugin \"Nonsense\" is unknown"
        );
        assert_eq!(
            refused(Plugins::default().enable("podsecurity")),
            "enable-admission-plugins plugin \"podsecurity\" is unknown"
        );
    }

    #[test]
    fn a_plugin_that_would_do_nothing_is_refused() {
        for name in [
            "PodGroupProtection",
            "ClusterTrustBundleAttest",
            "PodGroupWorkloadExists",
            "JobValidation",
        ] {
            let error = Plugins::default().enable(name).unwrap_err();
            let expected = format!(
                "enable-admission-plugins plugin \"{name}\" would do nothing: its feature gate is off in v1.36 and its kinds are not served; remove it"
            );
            assert_eq!(error.to_string(), expected);
            assert_eq!(Plugins::default().disable(name), Ok(()));
        }
    }

    #[test]
    fn every_other_plugin_can_be_turned_on_and_some_need_a_configuration() {
        let mut plugins = Plugins::default();
        for plugin in TABLE.iter().filter(|plugin| plugin.state == State::Off) {
            assert!(!plugins.has(plugin.name));
            plugins.enable(plugin.name).unwrap();
        }
        let order: Vec<&str> = TABLE
            .iter()
            .filter(|plugin| plugin.state != State::Gated)
            .map(|plugin| plugin.name)
            .collect();
        assert_eq!(
            plugins.iter().map(|plugin| plugin.name).collect::<Vec<_>>(),
            order
        );
        let refused = |plugins: &Plugins| {
            plugins
                .check(&Admission::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(&plugins),
            "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified"
        );
        plugins.disable(IMAGE_POLICY_WEBHOOK).unwrap();
        let expected = "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty";
        assert_eq!(refused(&plugins), expected);
        plugins.disable(EVENT_RATE_LIMIT).unwrap();
        assert_eq!(plugins.check(&Admission::default()), Ok(()));
    }
}
