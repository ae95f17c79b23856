//! Descriptions of types and fields from Kubernetes' documentation, out of the `k8s-openapi` crate.
//!
//! The crate generates a schema for every type it has. Its descriptions are loaded while a document
//! is written and dropped afterwards. It has no removed API versions; types that these share with
//! v1 use v1's descriptions.

use k8s_openapi::api::{
    admissionregistration::v1 as admissionregistration, apps::v1 as apps,
    authentication::v1 as authentication, authorization::v1 as authorization,
    autoscaling::v1 as autoscaling, autoscaling::v2 as autoscaling_v2, batch::v1 as batch,
    certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
    discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol,
    networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
    resource::v1 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::{apis::meta::v1 as meta, version};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration;
use k8s_openapi::schemars::generate::SchemaSettings;
use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use k8s_openapi::serde_json::{Map, Value};

/// Descriptions by definition.
#[derive(Default)]
pub(super) struct Prose(Map<String, Value>);

impl Prose {
    /// The descriptions of these definitions and of all that they refer to.
    pub(super) fn load<'a>(definitions: impl IntoIterator<Item = &'a str>) -> Prose {
        let mut generator = SchemaSettings::openapi3().into_generator();
        for definition in definitions {
            if let Some(root) = ROOTS
                .iter()
                .find(|root| (root.name)() == described_definition(definition))
            {
                (root.describe)(&mut generator);
            }
        }
        Prose(generator.take_definitions(false))
    }

    /// The description of a type.
    pub(super) fn definition(&self, name: &str) -> Option<&str> {
        self.0.get(&described_definition(name))?["description"].as_str()
    }

    pub(super) fn field(&self, definition: &str, field: &str) -> Option<&str> {
        // The crate describes this field at its type.
        if definition == WATCH_EVENT && field == "object" {
            return Some(
                "The object after the change or, if it was deleted, before it; a Status for an error.",
            );
        }
        self.0.get(&described_definition(definition))?["properties"][field]["description"].as_str()
    }
}

const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// The definition under which the crate describes a type.
fn described_definition(definition: &str) -> String {
    let Some((package, name)) = definition.rsplit_once('.') else {
        return definition.into();
    };
    let package = match package {
        "io.k8s.api.extensions.v1beta1" if NETWORKING.iter().any(|part| name.contains(part)) => {
            "io.k8s.api.networking.v1"
        }
        "io.k8s.api.extensions.v1beta1" => "io.k8s.api.apps.v1",
        package => match package.rfind("beta") {
            Some(at) => &package[..at],
            None => package,
        },
    };
    format!("{package}.{name}")
}

/// Parts of the names of types that moved from extensions to networking.k8s.io.
const NETWORKING: [&str; 3] = ["Ingress", "NetworkPolicy", "IPBlock"];

/// A type whose schema the crate generates.
struct ProseRoot {
    name: fn() -> std::borrow::Cow<'static, str>,
    describe: fn(&mut SchemaGenerator),
}

macro_rules! roots {
    ($($module:ident { $($name:ident $(<$of:ty>)?)* })*) => {
        &[$($(ProseRoot {
            name: <$module::$name $(<$of>)? as JsonSchema>::schema_name,
            describe: |generator| drop(generator.subschema_for::<$module::$name $(<$of>)?>()),
        }),*),*]
    };
}

const ROOTS: &[ProseRoot] = roots! {
    meta { APIGroup APIGroupList APIResourceList APIVersions DeleteOptions Patch Status WatchEvent<()> }
    version { Info }
    core {
        Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
        PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
    }
    admissionregistration {
        MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
        ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    }
    apps { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
    authentication { SelfSubjectReview TokenRequest TokenReview }
    authorization {
        LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    }
    autoscaling { HorizontalPodAutoscaler Scale }
    autoscaling_v2 { HorizontalPodAutoscaler }
    batch { CronJob Job }
    certificates { CertificateSigningRequest }
    coordination { Lease }
    discovery { EndpointSlice }
    events { Event }
    flowcontrol { FlowSchema PriorityLevelConfiguration }
    networking { IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR }
    node { RuntimeClass }
    policy { Eviction PodDisruptionBudget }
    rbac { ClusterRole ClusterRoleBinding Role RoleBinding }
    resource { DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice }
    scheduling { PriorityClass }
    storage {
        CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass
    }
    apiextensions { CustomResourceDefinition }
    apiregistration { APIService }
};
