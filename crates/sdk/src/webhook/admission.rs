//! AdmissionReviews: the request as a handler sees it, and the response.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource};
use mizzen_object::{Status, Violations};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::denied::Denied;
use crate::object::Object;

/// The version of AdmissionReviews.
pub(super) const ADMISSION_VERSION: &str = "admission.k8s.io/v1";

/// The operation of a request.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::webhook::{Operation, Rule};
///
/// let rule = Rule::kind::<Pod>().operations([Operation::Create, Operation::Delete]);
/// assert_eq!(Operation::Delete.name(), "DELETE");
/// # drop(rule);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object is updated.
    Update,
    /// An object is deleted; [`AdmissionRequest::old_object`] has it.
    Delete,
    /// A connection to a subresource, such as `pods/exec`.
    Connect,
}

impl Operation {
    /// Its name in rules.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// An admission request for objects of type `K`: any type that serde reads, or [`Object`].
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::webhook::{AdmissionRequest, Denied};
///
/// async fn validate(request: AdmissionRequest<ConfigMap>) -> Result<(), Denied> {
///     let colour = |config: &ConfigMap| Some(config.data.as_ref()?.get("colour")?.clone());
///     let new = colour(request.object()?);
///     if new.as_deref() == Some("grey") {
///         request.warn("grey is deprecated, use gray");
///     }
///     if let Some(old) = &request.old_object && colour(old) != new {
///         let user = request.user_info.username.as_deref().unwrap_or_default();
///         return Err(Denied::new(format!("{user} may not change the colour")));
///     }
///     request.annotate("colour", new.unwrap_or_default());
///     Ok(())
/// }
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<K> {
    /// Identifies the call.
    pub uid: String,
    /// The kind of the object.
    pub kind: GroupVersionKind,
    /// The resource.
    pub resource: GroupVersionResource,
    /// The subresource; empty if there is none.
    #[serde(default)]
    pub sub_resource: String,
    /// The kind of the original request, if the object was converted for this webhook.
    pub request_kind: Option<GroupVersionKind>,
    /// The resource of the original request.
    pub request_resource: Option<GroupVersionResource>,
    /// The subresource of the original request; empty if there is none.
    #[serde(default)]
    pub request_sub_resource: String,
    /// The object's name; empty if the server generates it.
    #[serde(default)]
    pub name: String,
    /// The object's namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The operation.
    pub operation: Operation,
    /// The user of the request.
    pub user_info: UserInfo,
    /// The new object; `None` on deletion.
    pub object: Option<K>,
    /// The stored object; `None` on creation and connection.
    pub old_object: Option<K>,
    /// Whether nothing will be stored: the handler must not have side effects.
    #[serde(default)]
    pub dry_run: bool,
    /// The options of the request: CreateOptions, UpdateOptions or DeleteOptions.
    pub options: Option<Object>,
    #[serde(skip)]
    notes: Arc<Mutex<AdmissionNotes>>,
}

/// What a handler says besides its decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AdmissionNotes {
    warnings: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl<K> AdmissionRequest<K> {
    /// The new object; without one, as on deletion, the request is denied as a bad request.
    pub fn object(&self) -> Result<&K, Denied> {
        self.object
            .as_ref()
            .ok_or_else(|| Denied::with_code(400, "BadRequest", "the request has no object"))
    }

    /// Adds a warning for the client, whether the request is allowed or denied. It should be at most
    /// 120 characters long.
    pub fn warn(&self, warning: impl Into<String>) {
        self.notes.lock().warnings.push(warning.into());
    }

    /// Adds an annotation to the audit event. The API server prefixes the key with the name of the
    /// webhook.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.notes
            .lock()
            .annotations
            .insert(key.into(), value.into());
    }

    /// The denial of an invalid object, with code 422 and a cause per violation.
    ///
    /// ```
    /// # use mizzen_sdk::{Object, webhook::{AdmissionRequest, Denied}};
    /// use mizzen_sdk::webhook::Violations;
    ///
    /// # fn check(request: AdmissionRequest<Object>) -> Result<(), Denied> {
    /// let mut violations = Violations::default();
    /// violations.invalid("spec.replicas", -1, "must not be negative");
    /// request.reject_invalid(&violations)?;
    /// # Ok(()) }
    /// ```
    pub fn reject_invalid(&self, violations: &Violations) -> Result<(), Denied> {
        if violations.is_empty() {
            return Ok(());
        }
        let kind = mizzen_object::GroupVersionKind {
            group: self.kind.group.as_str().into(),
            version: self.kind.version.as_str().into(),
            kind: self.kind.kind.as_str().into(),
        };
        Err(Denied::from_status(Status::invalid(
            &kind, &self.name, violations,
        )))
    }

    /// The same request with decoded objects.
    pub(super) fn decode<T: DeserializeOwned>(
        self,
        decode: impl Fn(K) -> Result<T, serde_json::Error>,
    ) -> Result<AdmissionRequest<T>, serde_json::Error> {
        Ok(AdmissionRequest {
            uid: self.uid,
            kind: self.kind,
            resource: self.resource,
            sub_resource: self.sub_resource,
            request_kind: self.request_kind,
            request_resource: self.request_resource,
            request_sub_resource: self.request_sub_resource,
            name: self.name,
            namespace: self.namespace,
            operation: self.operation,
            user_info: self.user_info,
            object: self.object.map(&decode).transpose()?,
            old_object: self.old_object.map(&decode).transpose()?,
            dry_run: self.dry_run,
            options: self.options,
            notes: self.notes,
        })
    }
}

/// A review as the API server sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionReview {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) request: Option<AdmissionRequest<Box<RawValue>>>,
}

/// The answer to a review.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse {
    api_version: &'static str,
    kind: &'static str,
    response: AdmissionResponse,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionResponse {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Object>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Where the response of a request is put together. It outlives the request, which its handler owns.
pub(super) struct PendingResponse {
    uid: String,
    notes: Arc<Mutex<AdmissionNotes>>,
}

impl PendingResponse {
    pub(super) fn new<K>(request: &AdmissionRequest<K>) -> PendingResponse {
        PendingResponse {
            uid: request.uid.clone(),
            notes: request.notes.clone(),
        }
    }

    /// The review that answers the request: allowed with a JSON Patch, which may be empty, or denied.
    pub(super) fn finish(
        self,
        outcome: Result<Option<String>, Denied>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let notes = std::mem::take(&mut *self.notes.lock());
        let (patch, denied) = match outcome {
            Ok(patch) => (patch, None),
            Err(denied) => (None, Some(denied)),
        };
        let response = AdmissionResponse {
            uid: self.uid,
            allowed: denied.is_none(),
            status: denied.map(|denied| Object(denied.status().to_value())),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch: patch.map(|patch| ByteString(patch.into_bytes())),
            audit_annotations: notes.annotations,
            warnings: notes.warnings,
        };
        serde_json::to_vec(&ReviewResponse {
            api_version: ADMISSION_VERSION,
            kind: "AdmissionReview",
            response,
        })
    }
}
