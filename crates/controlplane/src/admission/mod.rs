//! The admission plug-ins of kube-apiserver: a file or folder each.
//!
//! Which there are and in which order they run is the table in [`plugins`](mod@plugins) and nowhere else;
//! `mizzen_apiserver::admission` runs them.

mod always_pull_images;
mod anti_affinity;
mod certificate;
mod configuration;
mod default_class;
mod event_rate_limit;
mod extended_resource_toleration;
mod external_ips;
mod image_policy;
mod limits;
mod node_restriction;
mod owner_references;
mod plugins;
mod pod_node_selector;
mod pod_resize;
mod pod_security;
mod pod_tolerations;
mod priority;
mod protection;
mod quota;
mod runtime_class;
mod service_account;
mod taint;
mod toleration;
mod topology;
mod volume_resize;

pub use configuration::{Admission, AdmissionConfigurationError};
pub use event_rate_limit::EventRateLimit;
pub use image_policy::ImagePolicy;
pub(crate) use limits::LimitRangeLookups;
pub(crate) use plugins::RESOURCE_QUOTA;
pub use plugins::{PluginError, Plugins};
pub use pod_node_selector::NodeSelectors;
pub use pod_security::{NamespacePolicy, PodSecurity, Standard, StandardLevel, StandardVersion};
pub use pod_tolerations::PodTolerations;
pub(crate) use priority::SystemPriorityClasses;
pub use quota::LimitedResource;
pub(crate) use quota::ResourceQuota;
pub use toleration::TolerationSeconds;

use mizzen_apiserver::admission::{Attributes, annotate};

use crate::ControlPlane;

/// The configuration of the plug-ins.
fn admission<'a>(attributes: &Attributes<'a>) -> &'a Admission {
    &ControlPlane::of(attributes.call.server).admission
}
