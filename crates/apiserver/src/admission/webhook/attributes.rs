//! The attributes of a request for webhooks and policies.

use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::{DeleteOptions, Propagation, Resource};
use mizzen_value::{Value, value};

use super::matching::MatchedVersion;
use crate::admission::UNKNOWN_NAME;
use crate::delete_options;
use crate::verbs::ResourceCall;

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionOperation {
    Create,
    Update,
    Delete,
    Connect,
}

impl AdmissionOperation {
    pub(crate) const ALL: [AdmissionOperation; 4] = [
        AdmissionOperation::Create,
        AdmissionOperation::Update,
        AdmissionOperation::Delete,
        AdmissionOperation::Connect,
    ];

    /// As in rules and reviews.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AdmissionOperation::Create => "CREATE",
            AdmissionOperation::Update => "UPDATE",
            AdmissionOperation::Delete => "DELETE",
            AdmissionOperation::Connect => "CONNECT",
        }
    }

    /// The kind of the options, if the operation has any.
    fn options_kind(self) -> Option<&'static str> {
        match self {
            AdmissionOperation::Create => Some("CreateOptions"),
            AdmissionOperation::Update => Some("UpdateOptions"),
            AdmissionOperation::Delete => Some("DeleteOptions"),
            AdmissionOperation::Connect => None,
        }
    }
}

/// The version of the objects.
#[derive(Clone, Copy)]
enum ObjectVersion<'a> {
    /// The requested one.
    Asked,
    /// The one in which the registry validates them.
    Judged,
    /// The only version of a kind with this schema: a Scale, a Binding.
    Only(&'a Struct),
}

/// The operation and its objects.
#[derive(Clone)]
pub(crate) struct VersionedAttributes<'a> {
    pub call: &'a ResourceCall<'a>,
    /// The operation.
    pub operation: AdmissionOperation,
    /// The kind of the request: that of the resource or of a subresource.
    pub kind: GroupVersionKind,
    /// The new object; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// The old object; `None` for a create.
    pub old: Option<&'a Value>,
    form: ObjectVersion<'a>,
}

impl<'a> VersionedAttributes<'a> {
    /// A write in the requested version. [`with`](VersionedAttributes::with) adds the object.
    pub(crate) fn asked(
        call: &'a ResourceCall<'a>,
        old: Option<&'a Value>,
    ) -> VersionedAttributes<'a> {
        let operation = if old.is_some() {
            AdmissionOperation::Update
        } else {
            AdmissionOperation::Create
        };
        let kind = call.resource.kind().gvk.clone();
        VersionedAttributes {
            call,
            operation,
            kind,
            object: None,
            old,
            form: ObjectVersion::Asked,
        }
    }

    /// A write or a delete in the version of the registry's validation.
    pub(crate) fn judged(
        call: &'a ResourceCall<'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> VersionedAttributes<'a> {
        let asked = VersionedAttributes::asked(call, old);
        let operation = if object.is_some() {
            asked.operation
        } else {
            AdmissionOperation::Delete
        };
        VersionedAttributes {
            operation,
            object,
            form: ObjectVersion::Judged,
            ..asked
        }
    }

    /// A write of a subresource with a kind of its own.
    pub(crate) fn other(
        call: &'a ResourceCall<'a>,
        kind: &GroupVersionKind,
        root: &'a Struct,
        old: Option<&'a Value>,
    ) -> VersionedAttributes<'a> {
        VersionedAttributes {
            kind: kind.clone(),
            form: ObjectVersion::Only(root),
            ..VersionedAttributes::asked(call, old)
        }
    }

    /// A CONNECT with options of this kind.
    pub(crate) fn connect(
        call: &'a ResourceCall<'a>,
        kind: &GroupVersionKind,
        root: &'a Struct,
    ) -> VersionedAttributes<'a> {
        VersionedAttributes {
            operation: AdmissionOperation::Connect,
            ..VersionedAttributes::other(call, kind, root, None)
        }
    }

    /// A CONNECT without options: the kind is that of the subresource, and there is no object.
    pub(crate) fn connect_without_options(call: &'a ResourceCall<'a>) -> VersionedAttributes<'a> {
        let kind = call.resource.kind();
        let stated = kind
            .subresource(&call.path.subresource)
            .and_then(|subresource| subresource.kind.clone());
        VersionedAttributes {
            operation: AdmissionOperation::Connect,
            kind: stated.unwrap_or_else(|| kind.gvk.clone()),
            ..VersionedAttributes::asked(call, None)
        }
    }

    /// The same request with an object.
    pub(crate) fn with<'b>(&'b self, object: &'b Value) -> VersionedAttributes<'b> {
        VersionedAttributes {
            object: Some(object),
            ..self.clone()
        }
    }

    /// The name of the object; empty for a collection.
    pub(crate) fn name(&self) -> &str {
        let said = |object: Option<&'a Value>| {
            object.map_or("", |object| object["metadata"]["name"].str())
        };
        match self.call.path.name.as_str() {
            "" => said(self.object),
            name => name,
        }
    }

    /// The name of the object in errors.
    pub(crate) fn shown_name(&self) -> &str {
        let generated = self
            .object
            .map_or("", |object| object["metadata"]["generateName"].str());
        match (self.name(), generated) {
            ("", "") => UNKNOWN_NAME,
            ("", generated) => generated,
            (name, _) => name,
        }
    }

    /// The namespace. Kubernetes: a namespace is inside itself.
    pub(crate) fn namespace(&self) -> &str {
        match self.is_namespace() {
            true => self.name(),
            false => &self.call.path.namespace,
        }
    }

    /// Whether the request is for a Namespace.
    pub(crate) fn is_namespace(&self) -> bool {
        let kind = self.call.resource.kind();
        kind.plural == "namespaces" && kind.gvk.group.is_empty()
    }

    /// One of the request's objects in the version of `resource`.
    pub(crate) async fn shown(
        &self,
        object: Option<&Value>,
        resource: &Resource,
    ) -> Result<Value, Status> {
        let Some(object) = object else {
            return Ok(Value::Null);
        };
        let asked = self.call.resource;
        let own = resource.kind().gvk == asked.kind().gvk;
        let (mut shown, kind) = match self.form {
            ObjectVersion::Only(_) => (object.clone(), &self.kind),
            ObjectVersion::Asked if own => (object.clone(), &self.kind),
            // Custom objects are validated in the requested version.
            ObjectVersion::Judged if own || !asked.is_custom() => (
                resource.from_validation_version(object),
                &resource.kind().gvk,
            ),
            _ => (
                resource.convert_from(object, asked).await?,
                &resource.kind().gvk,
            ),
        };
        shown.set("kind", &kind.kind);
        shown.set("apiVersion", kind.api_version());
        Ok(shown)
    }

    /// The requested version.
    pub(crate) fn version(&self) -> MatchedVersion {
        MatchedVersion {
            resource: self.call.resource.clone(),
            kind: self.kind.clone(),
        }
    }

    /// The schema of the request's objects in a version.
    pub(crate) fn root<'b>(&'b self, version: &'b MatchedVersion) -> &'b Struct {
        self.other_root().unwrap_or(&version.resource.kind().root)
    }

    /// The schema of the request's objects, if they are not of the resource's kind.
    pub(crate) fn other_root(&self) -> Option<&Struct> {
        match self.form {
            ObjectVersion::Only(root) => Some(root),
            _ => None,
        }
    }

    /// The options of the request, and whether it is a dry run.
    pub(crate) fn options(&self) -> Result<(Value, bool), Status> {
        let operation = self.operation;
        let Some(kind) = operation.options_kind() else {
            return Ok((Value::Null, false));
        };
        let mut options = value!({ "kind": (kind), "apiVersion": "meta.k8s.io/v1" });
        let dry_run = match operation {
            AdmissionOperation::Delete => {
                let asked = delete_options::read(self.call.server, self.call.request)?;
                fill_delete_options(&mut options, &asked);
                asked.dry_run
            }
            _ => {
                let query = &self.call.request.query;
                for field in ["fieldManager", "fieldValidation"] {
                    if !query.text(field).is_empty() {
                        options.set(field, query.text(field));
                    }
                }
                !query.all("dryRun").is_empty()
            }
        };
        if dry_run {
            options.set("dryRun", vec![Value::from("All")]);
        }
        Ok((options, dry_run))
    }
}

fn fill_delete_options(options: &mut Value, asked: &DeleteOptions) {
    if let Some(grace) = asked.grace {
        options.set("gracePeriodSeconds", grace);
    }
    if let Some(uid) = &asked.uid {
        options.entry("preconditions").set("uid", uid.as_str());
    }
    if let Some(version) = &asked.version {
        options
            .entry("preconditions")
            .set("resourceVersion", version.as_str());
    }
    if let Some(orphan) = asked.orphan_dependents {
        options.set("orphanDependents", orphan);
    }
    if let Some(propagation) = asked.propagation {
        let word = match propagation {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        options.set("propagationPolicy", word);
    }
}
