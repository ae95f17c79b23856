//! Which plug-ins are there, in which order do they have their say, and which of them are on?
//!
//! The table has every plug-in that Kubernetes knows, in its order, so that the same names can be given on the
//! command line. Most are on unless somebody says otherwise; those that this server does not have cannot be
//! turned on.

use mizzen_object::{Status, Value};
use mizzen_registry::Future;

use super::{
    Attributes, certificate, check_with_policies, check_with_webhooks, default_class, limits, namespace,
    node_restriction, pod_resize, pod_security, priority, protection, quota, runtime_class, service_account,
    taint, toleration, topology, volume_resize,
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
pub(super) type MutateLater = for<'a> fn(&'a Attributes<'a>, &'a mut Value) -> Future<'a, Result<(), Status>>;
/// Refuses an object, or does not, when it has asked or waited.
pub(super) type ValidateLater = for<'a> fn(&'a Attributes<'a>, &'a Value) -> Future<'a, Result<(), Status>>;

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
    /// Kubernetes has it, this server has not.
    Absent,
}

impl Plugin {
    const fn on(name: &'static str, mutate: Mutate, validate: Validate) -> Plugin {
        Plugin { name, state: State::On, mutate, validate }
    }

    /// It is on, and there is nothing for it to do: what it looks at is behind a feature that is off by
    /// default, or it is called elsewhere.
    const fn idle(name: &'static str) -> Plugin {
        Plugin::on(name, Mutate::Nothing, Validate::Nothing)
    }

    const fn absent(name: &'static str) -> Plugin {
        Plugin { name, state: State::Absent, mutate: Mutate::Nothing, validate: Validate::Nothing }
    }
}

pub(super) const NAMESPACE_LIFECYCLE: &str = "NamespaceLifecycle";
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
        Plugin::absent("AlwaysAdmit"),
        Plugin::absent("NamespaceAutoProvision"),
        Plugin::on(NAMESPACE_LIFECYCLE, change(namespace::admit), ANY),
        Plugin::absent("NamespaceExists"),
        Plugin::absent("LimitPodHardAntiAffinityTopology"),
        Plugin::on("LimitRanger", change(limits::admit), check(limits::check)),
        Plugin::on(
            SERVICE_ACCOUNT,
            Mutate::Later { concerns: service_account::concerns, mutate: service_account::admit },
            check(service_account::check),
        ),
        Plugin::on(
            NODE_RESTRICTION,
            Mutate::Later { concerns: node_restriction::concerns, mutate: node_restriction::admit },
            ANY,
        ),
        Plugin::on("TaintNodesByCondition", change(taint::admit), ANY),
        Plugin::absent("AlwaysPullImages"),
        Plugin::absent("ImagePolicyWebhook"),
        Plugin::on("PodSecurity", SAME, check(pod_security::check)),
        Plugin::absent("PodNodeSelector"),
        Plugin::on("Priority", change(priority::admit), check(priority::check)),
        Plugin::on("DefaultTolerationSeconds", change(toleration::admit), ANY),
        Plugin::absent("PodTolerationRestriction"),
        Plugin::absent("EventRateLimit"),
        Plugin::absent("ExtendedResourceToleration"),
        Plugin::on("DefaultStorageClass", change(default_class::admit_claim), ANY),
        Plugin::on("StorageObjectInUseProtection", change(protection::admit), ANY),
        Plugin::idle("PodGroupProtection"),
        Plugin::absent("OwnerReferencesPermissionEnforcement"),
        Plugin::on("PersistentVolumeClaimResize", SAME, check(volume_resize::check)),
        Plugin::on("RuntimeClass", change(runtime_class::admit), check(runtime_class::check)),
        Plugin::on(
            "CertificateApproval",
            SAME,
            Validate::Later { concerns: certificate::is_approval, validate: certificate::check_approval },
        ),
        Plugin::on(
            "CertificateSigning",
            SAME,
            Validate::Later { concerns: certificate::is_status, validate: certificate::check_signing },
        ),
        Plugin::idle("ClusterTrustBundleAttest"),
        Plugin::on("CertificateSubjectRestriction", SAME, check(certificate::check_subject)),
        Plugin::on("DefaultIngressClass", change(default_class::admit_ingress), ANY),
        Plugin::absent("DenyServiceExternalIPs"),
        Plugin::on("PodTopologyLabels", change(topology::admit), ANY),
        Plugin::idle("PodGroupWorkloadExists"),
        Plugin::on("NodeDeclaredFeatureValidator", SAME, check(pod_resize::check_features)),
        Plugin::idle("JobValidation"),
        Plugin::on("PodResizeValidator", SAME, check(pod_resize::check_size)),
        // Those that ask others come last: they see what all before them have made of the object.
        // Called by `admit`, which lets everybody look again at what these two have changed.
        Plugin::idle(MUTATING_POLICY),
        Plugin::idle(MUTATING_WEBHOOK),
        Plugin::on(
            VALIDATING_POLICY,
            SAME,
            Validate::Later { concerns: |_| true, validate: check_with_policies },
        ),
        Plugin::on(
            VALIDATING_WEBHOOK,
            SAME,
            Validate::Later { concerns: |_| true, validate: check_with_webhooks },
        ),
        // After everybody else: what it counts must not be refused any more.
        Plugin::on(
            "ResourceQuota",
            SAME,
            Validate::Later { concerns: quota::concerns, validate: quota::check },
        ),
        Plugin::absent("AlwaysDeny"),
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
    /// Nobody has it.
    #[error("there is no admission plug-in \"{name}\"; known are {}", known().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// Kubernetes has it, this server has not.
    #[error("the admission plug-in \"{name}\" is not part of this server")]
    Absent {
        /// What was asked for.
        name: String,
    },
}

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins(TABLE.iter().filter(|plugin| plugin.state == State::On).collect())
    }
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|plugin| plugin.name)).finish()
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
        let plugin = find(name)?;
        if plugin.state == State::Absent {
            return Err(PluginError::Absent { name: name.into() });
        }
        self.0 = TABLE.iter().filter(|known| known.name == name || self.has(known.name)).collect();
        Ok(())
    }

    /// Turns one off.
    pub fn disable(&mut self, name: &str) -> Result<(), PluginError> {
        find(name)?;
        self.0.retain(|plugin| plugin.name != name);
        Ok(())
    }

    /// Whether one is on.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|plugin| plugin.name == name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Plugin> {
        self.0.iter().copied()
    }
}

fn find(name: &str) -> Result<&'static Plugin, PluginError> {
    let found = TABLE.iter().find(|plugin| plugin.name == name);
    found.ok_or_else(|| PluginError::Unknown { name: name.into() })
}

fn known() -> Vec<&'static str> {
    TABLE.iter().filter(|plugin| plugin.state == State::On).map(|plugin| plugin.name).collect()
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
        let error = Plugins::default().disable("Nonsense").unwrap_err();
        assert!(
            error.to_string().starts_with("there is no admission plug-in \"Nonsense\"; known are Namesp")
        );
        let error = Plugins::default().enable("AlwaysDeny").unwrap_err();
        assert_eq!(error.to_string(), "the admission plug-in \"AlwaysDeny\" is not part of this server");
        assert_eq!(Plugins::default().disable("AlwaysDeny"), Ok(()));
    }
}
