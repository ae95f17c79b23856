//! Resource types of the API and their paths.

use std::any::TypeId;
use std::borrow::Cow;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::ClusterResourceScope;

use crate::key::Key;

/// A resource type of the API: group, version, plural name, kind and scope.
///
/// ```
/// use mizzen_sdk::{Key, ResourceType};
///
/// const OVENS: ResourceType = ResourceType::namespaced("shop.example.com", "v1", "ovens", "Oven");
///
/// assert_eq!(OVENS.api_version(), "shop.example.com/v1");
/// assert_eq!(OVENS.path_of(&Key::new("shop", "big")), "/apis/shop.example.com/v1/namespaces/shop/ovens/big");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceType {
    /// The group, empty for the core group.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The plural name in paths.
    pub plural: Cow<'static, str>,
    /// The kind of its objects.
    pub kind: Cow<'static, str>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

impl ResourceType {
    /// A namespaced resource type.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> ResourceType {
        ResourceType {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
            namespaced: true,
        }
    }

    /// A cluster-scoped resource type.
    pub const fn cluster(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> ResourceType {
        let mut resource = ResourceType::namespaced(group, version, plural, kind);
        resource.namespaced = false;
        resource
    }

    /// The resource type of a Rust type.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use mizzen_sdk::ResourceType;
    /// use mizzen_sdk::resource::DEPLOYMENTS;
    ///
    /// assert_eq!(ResourceType::from_type::<Deployment>(), DEPLOYMENTS);
    /// ```
    pub fn from_type<K>() -> ResourceType
    where
        K: kube::Resource<DynamicType = (), Scope: 'static>,
    {
        ResourceType {
            group: K::group(&()),
            version: K::version(&()),
            plural: K::plural(&()),
            kind: K::kind(&()),
            namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
        }
    }

    /// A reference to one of its objects, as events have it.
    pub fn reference(&self, key: &Key, uid: &str, version: &str) -> ObjectReference {
        let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        ObjectReference {
            api_version: Some(self.api_version()),
            kind: Some(self.kind.to_string()),
            name: text(key.name()),
            namespace: text(key.namespace()),
            resource_version: text(version),
            uid: text(uid),
            field_path: None,
        }
    }

    /// The `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of all objects, or of those in a namespace unless that is empty.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            "/api"
        } else {
            "/apis"
        };
        let scope = match self.namespaced && !namespace.is_empty() {
            true => format!("/namespaces/{namespace}"),
            false => String::new(),
        };
        format!("{root}/{}{scope}/{}", self.api_version(), self.plural)
    }

    /// The path of one object.
    pub fn path_of(&self, key: &Key) -> String {
        format!("{}/{}", self.path(key.namespace()), key.name())
    }
}

macro_rules! resources {
    ($($scope:ident $name:ident = $group:literal $version:literal $plural:literal $kind:literal;)*) => {
        $(
            #[doc = concat!($kind, " of ", $group, "/", $version, ".")]
            pub const $name: ResourceType = ResourceType::$scope($group, $version, $plural, $kind);
        )*
    };
}

resources! {
    namespaced PODS = "" "v1" "pods" "Pod";
    cluster NODES = "" "v1" "nodes" "Node";
    cluster NAMESPACES = "" "v1" "namespaces" "Namespace";
    namespaced SERVICES = "" "v1" "services" "Service";
    namespaced ENDPOINTS = "" "v1" "endpoints" "Endpoints";
    namespaced SECRETS = "" "v1" "secrets" "Secret";
    namespaced CONFIG_MAPS = "" "v1" "configmaps" "ConfigMap";
    namespaced SERVICE_ACCOUNTS = "" "v1" "serviceaccounts" "ServiceAccount";
    namespaced RESOURCE_QUOTAS = "" "v1" "resourcequotas" "ResourceQuota";
    namespaced REPLICATION_CONTROLLERS = "" "v1" "replicationcontrollers" "ReplicationController";
    namespaced PERSISTENT_VOLUME_CLAIMS = "" "v1" "persistentvolumeclaims" "PersistentVolumeClaim";
    cluster PERSISTENT_VOLUMES = "" "v1" "persistentvolumes" "PersistentVolume";
    namespaced EVENTS = "" "v1" "events" "Event";
    namespaced DEPLOYMENTS = "apps" "v1" "deployments" "Deployment";
    namespaced REPLICA_SETS = "apps" "v1" "replicasets" "ReplicaSet";
    namespaced STATEFUL_SETS = "apps" "v1" "statefulsets" "StatefulSet";
    namespaced DAEMON_SETS = "apps" "v1" "daemonsets" "DaemonSet";
    namespaced CONTROLLER_REVISIONS = "apps" "v1" "controllerrevisions" "ControllerRevision";
    namespaced JOBS = "batch" "v1" "jobs" "Job";
    namespaced CRON_JOBS = "batch" "v1" "cronjobs" "CronJob";
    namespaced LEASES = "coordination.k8s.io" "v1" "leases" "Lease";
    namespaced ENDPOINT_SLICES = "discovery.k8s.io" "v1" "endpointslices" "EndpointSlice";
    namespaced POD_DISRUPTION_BUDGETS = "policy" "v1" "poddisruptionbudgets" "PodDisruptionBudget";
    namespaced HORIZONTAL_POD_AUTOSCALERS = "autoscaling" "v2" "horizontalpodautoscalers" "HorizontalPodAutoscaler";
    cluster CLUSTER_ROLES = "rbac.authorization.k8s.io" "v1" "clusterroles" "ClusterRole";
    cluster CERTIFICATE_SIGNING_REQUESTS = "certificates.k8s.io" "v1" "certificatesigningrequests" "CertificateSigningRequest";
    cluster SERVICE_CIDRS = "networking.k8s.io" "v1" "servicecidrs" "ServiceCIDR";
    cluster IP_ADDRESSES = "networking.k8s.io" "v1" "ipaddresses" "IPAddress";
    cluster STORAGE_CLASSES = "storage.k8s.io" "v1" "storageclasses" "StorageClass";
    cluster CSI_NODES = "storage.k8s.io" "v1" "csinodes" "CSINode";
    cluster CSI_DRIVERS = "storage.k8s.io" "v1" "csidrivers" "CSIDriver";
    cluster VOLUME_ATTACHMENTS = "storage.k8s.io" "v1" "volumeattachments" "VolumeAttachment";
    namespaced CSI_STORAGE_CAPACITIES = "storage.k8s.io" "v1" "csistoragecapacities" "CSIStorageCapacity";
    namespaced RESOURCE_CLAIMS = "resource.k8s.io" "v1" "resourceclaims" "ResourceClaim";
    namespaced RESOURCE_CLAIM_TEMPLATES = "resource.k8s.io" "v1" "resourceclaimtemplates" "ResourceClaimTemplate";
    cluster RESOURCE_SLICES = "resource.k8s.io" "v1" "resourceslices" "ResourceSlice";
    cluster DEVICE_CLASSES = "resource.k8s.io" "v1" "deviceclasses" "DeviceClass";
    cluster PRIORITY_CLASSES = "scheduling.k8s.io" "v1" "priorityclasses" "PriorityClass";
    cluster VOLUME_ATTRIBUTES_CLASSES = "storage.k8s.io" "v1" "volumeattributesclasses" "VolumeAttributesClass";
    cluster SUBJECT_ACCESS_REVIEWS = "authorization.k8s.io" "v1" "subjectaccessreviews" "SubjectAccessReview";
    cluster CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io" "v1" "customresourcedefinitions" "CustomResourceDefinition";
    cluster VALIDATING_ADMISSION_POLICIES = "admissionregistration.k8s.io" "v1" "validatingadmissionpolicies" "ValidatingAdmissionPolicy";
    cluster STORAGE_VERSION_MIGRATIONS = "storagemigration.k8s.io" "v1beta1" "storageversionmigrations" "StorageVersionMigration";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(PODS.path("shop"), "/api/v1/namespaces/shop/pods");
        assert_eq!(PODS.path(""), "/api/v1/pods");
        assert_eq!(NODES.path_of(&Key::cluster("n1")), "/api/v1/nodes/n1");
        assert_eq!(
            DEPLOYMENTS.path_of(&Key::new("a", "b")),
            "/apis/apps/v1/namespaces/a/deployments/b"
        );
    }
}
