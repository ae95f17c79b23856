//! The table of admission plug-ins: their names, their order, and which are enabled.
//!
//! It has every plug-in of Kubernetes in upstream's order, so that the same names work on the command line. Most are
//! enabled by default. Those of a feature gate that is off have nothing to do and cannot be enabled.

use mizzen_apiserver::admission as generic;
use mizzen_apiserver::admission::{Mutate, Plugin, Validate};

use super::{
    Admission, always_pull_images, anti_affinity, certificate, default_class, event_rate_limit,
    extended_resource_toleration, external_ips, image_policy, limits, node_restriction,
    owner_references, pod_node_selector, pod_resize, pod_security, pod_tolerations, priority,
    protection, runtime_class, service_account, taint, toleration, topology, volume_resize,
};

/// One row of the table.
struct PluginRow {
    plugin: Plugin,
    state: PluginDefault,
}

/// Whether a plug-in is on where neither enabled nor disabled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PluginDefault {
    On,
    Off,
    /// The feature gate of its kinds is off in v1.36, and they are not served.
    Gated,
}

impl PluginRow {
    const fn on(name: &'static str, mutate: Mutate, validate: Validate) -> PluginRow {
        PluginRow {
            plugin: Plugin::new(name, mutate, validate),
            state: PluginDefault::On,
        }
    }

    const fn off(name: &'static str, mutate: Mutate, validate: Validate) -> PluginRow {
        PluginRow {
            plugin: Plugin::new(name, mutate, validate),
            state: PluginDefault::Off,
        }
    }

    const fn gated(name: &'static str) -> PluginRow {
        PluginRow {
            plugin: Plugin::new(name, Mutate::Nothing, Validate::Nothing),
            state: PluginDefault::Gated,
        }
    }

    /// One that the generic server has.
    const fn generic(plugin: Plugin, state: PluginDefault) -> PluginRow {
        PluginRow { plugin, state }
    }
}

const ALWAYS_ADMIT: &str = "AlwaysAdmit";
const EVENT_RATE_LIMIT: &str = "EventRateLimit";
const IMAGE_POLICY_WEBHOOK: &str = "ImagePolicyWebhook";
const SERVICE_ACCOUNT: &str = "ServiceAccount";
const NODE_RESTRICTION: &str = "NodeRestriction";
/// The plug-in that charges quotas: a [`WriteStrategy`](generic::WriteStrategy).
pub(crate) const RESOURCE_QUOTA: &str = "ResourceQuota";

/// Every plug-in, in order.
static TABLE: &[PluginRow] = {
    use Mutate::Now as change;
    use Validate::Now as check;
    const SAME: Mutate = Mutate::Nothing;
    const ANY: Validate = Validate::Nothing;
    &[
        PluginRow::off(ALWAYS_ADMIT, SAME, ANY),
        PluginRow::generic(generic::NAMESPACE_AUTO_PROVISION, PluginDefault::Off),
        PluginRow::generic(generic::NAMESPACE_LIFECYCLE, PluginDefault::On),
        PluginRow::generic(generic::NAMESPACE_EXISTS, PluginDefault::Off),
        PluginRow::off(
            "LimitPodHardAntiAffinityTopology",
            SAME,
            check(anti_affinity::check),
        ),
        PluginRow::on(
            "LimitRanger",
            Mutate::Later {
                concerns: limits::concerns,
                mutate: limits::admit,
            },
            check(limits::check),
        ),
        PluginRow::on(
            SERVICE_ACCOUNT,
            Mutate::Later {
                concerns: service_account::concerns,
                mutate: service_account::admit,
            },
            Validate::Later {
                concerns: service_account::is_of_pod,
                validate: service_account::check,
            },
        ),
        PluginRow {
            plugin: Plugin {
                validate_deletion: Some(node_restriction::check_delete),
                ..Plugin::new(
                    NODE_RESTRICTION,
                    Mutate::Later {
                        concerns: node_restriction::concerns,
                        mutate: node_restriction::admit,
                    },
                    ANY,
                )
            },
            state: PluginDefault::On,
        },
        PluginRow::on("TaintNodesByCondition", change(taint::admit), ANY),
        PluginRow::off(
            "AlwaysPullImages",
            change(always_pull_images::admit),
            check(always_pull_images::check),
        ),
        PluginRow::off(
            IMAGE_POLICY_WEBHOOK,
            SAME,
            Validate::Later {
                concerns: image_policy::concerns,
                validate: image_policy::check,
            },
        ),
        PluginRow::on("PodSecurity", SAME, check(pod_security::check)),
        PluginRow::off(
            "PodNodeSelector",
            change(pod_node_selector::admit),
            check(pod_node_selector::check),
        ),
        PluginRow::on("Priority", change(priority::admit), check(priority::check)),
        PluginRow::on("DefaultTolerationSeconds", change(toleration::admit), ANY),
        PluginRow::off(
            "PodTolerationRestriction",
            change(pod_tolerations::admit),
            check(pod_tolerations::check),
        ),
        PluginRow::off(EVENT_RATE_LIMIT, SAME, check(event_rate_limit::check)),
        PluginRow::off(
            "ExtendedResourceToleration",
            change(extended_resource_toleration::admit),
            ANY,
        ),
        PluginRow::on(
            "DefaultStorageClass",
            change(default_class::admit_claim),
            ANY,
        ),
        PluginRow::on(
            "StorageObjectInUseProtection",
            change(protection::admit),
            ANY,
        ),
        PluginRow::gated("PodGroupProtection"),
        PluginRow::off(
            "OwnerReferencesPermissionEnforcement",
            SAME,
            Validate::Later {
                concerns: owner_references::concerns,
                validate: owner_references::check,
            },
        ),
        PluginRow::on(
            "PersistentVolumeClaimResize",
            SAME,
            check(volume_resize::check),
        ),
        PluginRow::on(
            "RuntimeClass",
            Mutate::Later {
                concerns: runtime_class::concerns,
                mutate: runtime_class::admit,
            },
            Validate::Later {
                concerns: runtime_class::concerns,
                validate: runtime_class::check,
            },
        ),
        PluginRow::on(
            "CertificateApproval",
            SAME,
            Validate::Later {
                concerns: certificate::is_approval,
                validate: certificate::check_approval,
            },
        ),
        PluginRow::on(
            "CertificateSigning",
            SAME,
            Validate::Later {
                concerns: certificate::is_status,
                validate: certificate::check_signing,
            },
        ),
        PluginRow::gated("ClusterTrustBundleAttest"),
        PluginRow::on(
            "CertificateSubjectRestriction",
            SAME,
            check(certificate::check_subject),
        ),
        PluginRow::on(
            "DefaultIngressClass",
            change(default_class::admit_ingress),
            ANY,
        ),
        PluginRow::off("DenyServiceExternalIPs", SAME, check(external_ips::check)),
        PluginRow::on("PodTopologyLabels", change(topology::admit), ANY),
        PluginRow::gated("PodGroupWorkloadExists"),
        PluginRow::on(
            "NodeDeclaredFeatureValidator",
            SAME,
            check(pod_resize::check_features),
        ),
        PluginRow::gated("JobValidation"),
        PluginRow::on("PodResizeValidator", SAME, check(pod_resize::check_size)),
        // Policies and webhooks come last: they see what all before them have made of the object.
        PluginRow::generic(generic::MUTATING_POLICY, PluginDefault::On),
        PluginRow::generic(generic::MUTATING_WEBHOOK, PluginDefault::On),
        PluginRow::generic(generic::VALIDATING_POLICY, PluginDefault::On),
        PluginRow::generic(generic::VALIDATING_WEBHOOK, PluginDefault::On),
        // The last one: what it counts must not be rejected any more.
        PluginRow::on(RESOURCE_QUOTA, SAME, ANY),
        PluginRow::generic(generic::ALWAYS_DENY, PluginDefault::Off),
    ]
};

/// Enabled by default only in a whole control plane.
const WHOLE: [&str; 2] = [SERVICE_ACCOUNT, NODE_RESTRICTION];

/// The enabled plug-ins.
#[derive(Clone)]
pub struct Plugins(Vec<&'static PluginRow>);

/// Why a plug-in cannot be enabled or disabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// There is no such plug-in. The message is upstream's (server/options/admission.go).
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
        /// The name of the plug-in.
        name: String,
    },
    /// It is both enabled and disabled. The message is upstream's (server/options/admission.go).
    #[error("[{names}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap {
        /// The plug-ins.
        names: String,
    },
    /// Several of these, as upstream joins them.
    #[error("{0}")]
    Several(String),
    /// It is enabled without the configuration that it needs.
    #[error("couldn't init admission plugin \"{name}\": {why}")]
    Unconfigured {
        /// The plug-in.
        name: &'static str,
        /// What is missing, with upstream's message.
        why: &'static str,
    },
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins(
            TABLE
                .iter()
                .filter(|row| row.state == PluginDefault::On)
                .collect(),
        )
    }
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|row| row.plugin.name))
            .finish()
    }
}

impl Plugins {
    /// Those of an API server alone: without controllers for service accounts, and with nodes of any kind.
    pub fn alone() -> Plugins {
        let mut plugins = Plugins::default();
        plugins.0.retain(|row| !WHOLE.contains(&row.plugin.name));
        plugins
    }

    /// Turns one on.
    pub fn enable(&mut self, name: &str) -> Result<(), PluginError> {
        let row = find(name).ok_or_else(|| PluginError::Unknown {
            flag: "enable-admission-plugins",
            name: name.into(),
        })?;
        if row.state == PluginDefault::Gated {
            return Err(PluginError::Gated { name: name.into() });
        }
        if [ALWAYS_ADMIT, generic::ALWAYS_DENY.name].contains(&name) {
            tracing::warn!(
                "{name} admission controller is deprecated. Please remove this controller from your \
                 configuration files and scripts."
            );
        }
        self.0 = TABLE
            .iter()
            .filter(|row| row.plugin.name == name || self.has(row.plugin.name))
            .collect();
        Ok(())
    }

    /// Disables a plug-in.
    pub fn disable(&mut self, name: &str) -> Result<(), PluginError> {
        if !Plugins::knows(name) {
            return Err(PluginError::Unknown {
                flag: "disable-admission-plugins",
                name: name.into(),
            });
        }
        self.0.retain(|row| row.plugin.name != name);
        Ok(())
    }

    /// Rejects an enabled plug-in that cannot work with this configuration.
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

    /// Whether there is a plug-in of this name.
    pub(super) fn knows(name: &str) -> bool {
        find(name).is_some()
    }

    /// Whether a plug-in is enabled.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|row| row.plugin.name == name)
    }

    /// The plug-ins, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Plugin> {
        self.0.iter().map(|row| &row.plugin)
    }
}

fn find(name: &str) -> Option<&'static PluginRow> {
    TABLE.iter().find(|row| row.plugin.name == name)
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
    fn unknown_plugin_names_are_rejected() {
        let rejected = |outcome: Result<(), PluginError>| outcome.unwrap_err().to_string();
        assert_eq!(
            rejected(Plugins::default().disable("Nonsense")),
            "disable-admission-plugins plugin \"Nonsense\" is unknown"
        );
        assert_eq!(
            rejected(Plugins::default().enable("podsecurity")),
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
        for row in TABLE.iter().filter(|row| row.state == PluginDefault::Off) {
            assert!(!plugins.has(row.plugin.name));
            plugins.enable(row.plugin.name).unwrap();
        }
        let order: Vec<&str> = TABLE
            .iter()
            .filter(|row| row.state != PluginDefault::Gated)
            .map(|row| row.plugin.name)
            .collect();
        assert_eq!(
            plugins.iter().map(|plugin| plugin.name).collect::<Vec<_>>(),
            order
        );
        let rejected = |plugins: &Plugins| {
            plugins
                .check(&Admission::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            rejected(&plugins),
            "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified"
        );
        plugins.disable(IMAGE_POLICY_WEBHOOK).unwrap();
        let expected = "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty";
        assert_eq!(rejected(&plugins), expected);
        plugins.disable(EVENT_RATE_LIMIT).unwrap();
        assert_eq!(plugins.check(&Admission::default()), Ok(()));
    }
}
