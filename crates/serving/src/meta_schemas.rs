//! The schemas of types that are no resources, such as Status, DeleteOptions and discovery documents.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::GroupVersionKind;
use mizzen_object::schema::{Schemas, Struct};
use mizzen_value::Str;

/// The schemas of requests and responses that are no resources.
pub struct MetaSchemas {
    /// The shape of a `Status`.
    pub status: Arc<Struct>,
    /// The shape of a `ObjectMeta`.
    pub object_meta: Arc<Struct>,
    /// The shape of a `PartialObjectMetadata`.
    pub partial: Arc<Struct>,
    /// The shape of a `PartialObjectMetadataList`.
    pub partial_list: Arc<Struct>,
    /// The shape of a `ListMeta`.
    pub list_meta: Arc<Struct>,
    /// The shape of a `DeleteOptions`.
    pub delete_options: Arc<Struct>,
    /// The shape of a `Scale`.
    pub scale: Arc<Struct>,
    /// The shape of a `Eviction`.
    pub eviction: Arc<Struct>,
    /// The shape of a `TokenRequest`.
    pub token_request: Arc<Struct>,
    /// The shape of a `AdmissionReview`.
    pub admission_review: Arc<Struct>,
    /// The kinds of workload subresources, by full name: `apps/v1beta1.Scale`.
    subresources: HashMap<Str, Arc<Struct>>,

    /// The discovery documents, by kind.
    pub discovery: HashMap<&'static str, Arc<Struct>>,
    connect_options: [(&'static str, Arc<Struct>); 6],
}

/// The kinds of options of `connect` requests.
const CONNECT_OPTIONS: [&str; 6] = [
    "NodeProxyOptions",
    "PodAttachOptions",
    "PodExecOptions",
    "PodPortForwardOptions",
    "PodProxyOptions",
    "ServiceProxyOptions",
];

impl MetaSchemas {
    /// Looks them up among the built-in types.
    pub fn new(schemas: &Schemas) -> MetaSchemas {
        let find = |name: &str| {
            schemas
                .types
                .get(name)
                .cloned()
                .unwrap_or_else(|| Arc::new(Struct::new(name, "meta/v1", false)))
        };
        MetaSchemas {
            status: find("meta/v1.Status"),
            object_meta: find("meta/v1.ObjectMeta"),
            partial: find("meta/v1.PartialObjectMetadata"),
            partial_list: find("meta/v1.PartialObjectMetadataList"),
            list_meta: find("meta/v1.ListMeta"),
            delete_options: find("meta/v1.DeleteOptions"),
            scale: find("autoscaling/v1.Scale"),
            eviction: find("policy/v1.Eviction"),
            token_request: find("authentication.k8s.io/v1.TokenRequest"),
            admission_review: find("admission.k8s.io/v1.AdmissionReview"),
            subresources: schemas
                .types
                .iter()
                .filter(|(_, schema)| {
                    matches!(schema.name.as_str(), "Scale" | "DeploymentRollback")
                })
                .map(|(name, schema)| (name.clone(), schema.clone()))
                .collect(),
            discovery: HashMap::from([
                ("APIVersions", find("meta/v1.APIVersions")),
                ("APIGroup", find("meta/v1.APIGroup")),
                ("APIGroupList", find("meta/v1.APIGroupList")),
                ("APIResourceList", find("meta/v1.APIResourceList")),
                (
                    "APIGroupDiscoveryList",
                    find("apidiscovery.k8s.io/v2.APIGroupDiscoveryList"),
                ),
            ]),
            connect_options: CONNECT_OPTIONS.map(|kind| (kind, find(&format!("core/v1.{kind}")))),
        }
    }

    /// The schema of a Scale or a DeploymentRollback.
    pub fn subresource(&self, gvk: &GroupVersionKind) -> Option<&Arc<Struct>> {
        self.subresources
            .get(format!("{}.{}", gvk.api_version(), gvk.kind).as_str())
    }

    /// The options of a connection to a node, pod or service, by their kind.
    pub fn connect_options(&self, kind: &str) -> &Struct {
        let found = self
            .connect_options
            .iter()
            .find(|(known, _)| *known == kind);
        &found.expect("connections have options of these kinds").1
    }
}
