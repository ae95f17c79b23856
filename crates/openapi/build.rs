//! Extracts the descriptions of types and fields from the `k8s-openapi` crate.
//!
//! The crate has them as code that generates JSON schemas, which takes megabytes. They are a few hundred kilobytes of text,
//! and a third of that compressed. So the code runs here, at build time, and the library has the text.

use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::DeflateEncoder;
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
use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::schemars::generate::SchemaSettings;
use k8s_openapi::serde_json::{Map, Value};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaSettings::openapi3().into_generator();
    add_roots(&mut generator);
    let definitions = generator.take_definitions(false).into_iter();
    let descriptions: Map<String, Value> = definitions
        .map(|(name, schema)| (name, descriptions(&schema)))
        .collect();

    let path = Path::new(&env::var_os("OUT_DIR").unwrap()).join("descriptions.deflate");
    let mut file = DeflateEncoder::new(fs::File::create(path).unwrap(), Compression::best());
    file.write_all(Value::Object(descriptions).to_string().as_bytes())
        .unwrap();
    file.finish().unwrap();
}

/// The descriptions of a type's fields by name; that of the type itself has no name.
fn descriptions(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, field)| (name.as_str(), field));
    let described = fields
        .chain([("", schema)])
        .filter_map(|(name, schema)| Some((name.into(), schema.get("description")?.clone())));
    Value::Object(described.collect())
}

/// Adds types, and all types that their fields have.
macro_rules! roots {
    ($($module:ident { $($name:ident $(<$of:ty>)?)* })*) => {
        fn add_roots(generator: &mut SchemaGenerator) {
            $($(generator.subschema_for::<$module::$name $(<$of>)?>();)*)*
        }
    };
}

roots! {
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
}
