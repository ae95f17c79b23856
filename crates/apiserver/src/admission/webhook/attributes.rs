//! What is a request about, as webhooks and policies see it?

use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::{DeleteOptions, Propagation, Resource};
use mizzen_value::{Value, value};

use super::matching::Version;
use crate::admission::UNKNOWN_NAME;
use crate::delete_options;
use crate::verbs::Call;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As rules and reviews spell it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// The kind of the options, if there are any.
    fn options_kind(self) -> Option<&'static str> {
        match self {
            Operation::Create => Some("CreateOptions"),
            Operation::Update => Some("UpdateOptions"),
            Operation::Delete => Some("DeleteOptions"),
            Operation::Connect => None,
        }
    }
}

/// The version that objects are in.
#[derive(Clone, Copy)]
enum Form<'a> {
    /// The one that was asked for.
    Asked,
    /// The one in which the registry judges them.
    Judged,
    /// They are of a kind that has no other version and this shape: a Scale, a Binding.
    Only(&'a Struct),
}

/// What is asked, and of what.
#[derive(Clone)]
pub(crate) struct Attributes<'a> {
    pub call: &'a Call<'a>,
    /// What is done.
    pub operation: Operation,
    /// The kind that the request speaks: that of the resource, or the one of a subresource.
    pub kind: GroupVersionKind,
    /// The object as it shall be, none if it is being deleted.
    pub object: Option<&'a Value>,
    /// The object as it is, none if it is being made.
    pub old: Option<&'a Value>,
    form: Form<'a>,
}

impl<'a> Attributes<'a> {
    /// Of a write in the version that was asked for. The object is given with [`with`](Attributes::with).
    pub(crate) fn asked(call: &'a Call<'a>, old: Option<&'a Value>) -> Attributes<'a> {
        let operation = if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        let kind = call.resource.kind().gvk.clone();
        Attributes {
            call,
            operation,
            kind,
            object: None,
            old,
            form: Form::Asked,
        }
    }

    /// Of a write or a delete as the registry judges it.
    pub(crate) fn judged(
        call: &'a Call<'a>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> Attributes<'a> {
        let asked = Attributes::asked(call, old);
        let operation = if object.is_some() {
            asked.operation
        } else {
            Operation::Delete
        };
        Attributes {
            operation,
            object,
            form: Form::Judged,
            ..asked
        }
    }

    /// Of a write of another kind than the resource's, which a subresource speaks.
    pub(crate) fn other(
        call: &'a Call<'a>,
        kind: &GroupVersionKind,
        root: &'a Struct,
        old: Option<&'a Value>,
    ) -> Attributes<'a> {
        Attributes {
            kind: kind.clone(),
            form: Form::Only(root),
            ..Attributes::asked(call, old)
        }
    }

    /// Of a connection to an object, whose options are of this kind.
    pub(crate) fn connect(
        call: &'a Call<'a>,
        kind: &GroupVersionKind,
        root: &'a Struct,
    ) -> Attributes<'a> {
        Attributes {
            operation: Operation::Connect,
            ..Attributes::other(call, kind, root, None)
        }
    }

    /// The same request with an object.
    pub(crate) fn with<'b>(&'b self, object: &'b Value) -> Attributes<'b> {
        Attributes {
            object: Some(object),
            ..self.clone()
        }
    }

    /// The object's name; a collection has none, even though its objects do.
    pub(crate) fn name(&self) -> &str {
        let said = |object: Option<&'a Value>| {
            object.map_or("", |object| object["metadata"]["name"].str())
        };
        match self.call.path.name.as_str() {
            "" => said(self.object),
            name => name,
        }
    }

    /// What a refusal calls the object.
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

    /// The namespace. Kubernetes: a namespace is in itself.
    pub(crate) fn namespace(&self) -> &str {
        match self.is_namespace() {
            true => self.name(),
            false => &self.call.path.namespace,
        }
    }

    /// Whether the request is about a namespace itself.
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
            Form::Only(_) => (object.clone(), &self.kind),
            Form::Asked if own => (object.clone(), &self.kind),
            // Custom objects are judged in the version that was asked for.
            Form::Judged if own || !asked.is_custom() => {
                (resource.judged_as(object), &resource.kind().gvk)
            }
            _ => (resource.turned(object, asked).await?, &resource.kind().gvk),
        };
        shown.set("kind", &kind.kind);
        shown.set("apiVersion", kind.api_version());
        Ok(shown)
    }

    /// The version that was asked for.
    pub(crate) fn version(&self) -> Version {
        Version {
            resource: self.call.resource.clone(),
            kind: self.kind.clone(),
        }
    }

    /// The shape of the request's objects in a version.
    pub(crate) fn root<'b>(&'b self, version: &'b Version) -> &'b Struct {
        self.other_root().unwrap_or(&version.resource.kind().root)
    }

    /// The shape of the request's objects, if they are not of the resource's kind.
    pub(crate) fn other_root(&self) -> Option<&Struct> {
        match self.form {
            Form::Only(root) => Some(root),
            _ => None,
        }
    }

    /// The options of the request, and whether nothing is to be stored.
    pub(crate) fn options(&self) -> Result<(Value, bool), Status> {
        let operation = self.operation;
        let Some(kind) = operation.options_kind() else {
            return Ok((Value::Null, false));
        };
        let mut options = value!({ "kind": (kind), "apiVersion": "meta.k8s.io/v1" });
        let dry_run = match operation {
            Operation::Delete => {
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
