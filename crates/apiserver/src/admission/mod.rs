//! What the server does to every write besides its kind's own rules: it fills in what only it knows, takes
//! what must be had only once, and refuses what the cluster's state forbids.
//!
//! The order of the plug-ins is the order in [`admit`], and for those that have the last word the order in
//! [`Checks`]; it is nowhere else.

mod limits;
mod namespace;
mod pod;
mod protection;
mod runtime_class;
mod service;
mod webhook;

pub(crate) use service::{Claim, Claims};
pub(crate) use webhook::Webhooks;

use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status, Value};
use mizzen_registry::{Future, Gate, Resource};

use crate::access::escalation;
use crate::definitions;
use crate::request::ResourcePath;
use crate::verbs::Call;

/// A write on its way to the registry.
pub(crate) struct Write<'a> {
    pub call: &'a Call<'a>,
    /// The object as stored, none if it is being made.
    pub old: Option<&'a Value>,
    /// What is taken for this write until it is stored or given up.
    pub claim: &'a mut Claim,
}

/// Changes `object` as the server must, or refuses it.
pub(crate) async fn admit(mut write: Write<'_>, object: &mut Value) -> Result<(), Status> {
    let (mut rounds, call, old) = (webhook::Rounds::default(), write.call, write.old);
    loop {
        plug_in(&mut write, object)?;
        if !rounds.mutate(&webhook::Attributes::asked(call, old), Some(object)).await? {
            return escalation::check(call, old, object).await;
        }
    }
}

fn plug_in(write: &mut Write<'_>, object: &mut Value) -> Result<(), Status> {
    definitions::admit(write, object)?;
    namespace::admit(write, object)?;
    let kind = write.call.resource.kind();
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => {
            limits::admit(write, object)?;
            pod::admit(write, object)?;
            runtime_class::admit(write, object)
        }
        ("", "Service") => service::admit(write, object),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            protection::admit(write, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses what is made below an object, such as an eviction, where its namespace does not allow it.
pub(crate) fn admit_below(call: &Call, object: &Value) -> Result<(), Status> {
    let mut claim = call.server.claims.claim();
    namespace::admit(&Write { call, old: None, claim: &mut claim }, object)
}

/// Lets an object be deleted, or refuses.
pub(crate) fn on_delete(resource: &Resource, path: &ResourcePath) -> Result<(), Status> {
    namespace::on_delete(resource, path)?;
    protection::on_delete(resource, path)
}

/// The last word on what a write has come to.
pub(crate) struct Checks<'a>(pub &'a Call<'a>);

impl Gate for Checks<'_> {
    fn check<'a>(&'a self, new: Option<&'a Value>, old: Option<&'a Value>) -> Future<'a, Result<(), Status>> {
        Box::pin(async move {
            if let Some(new) = new {
                check(self.0, new, old)?;
            }
            let attributes = webhook::Attributes::judged(self.0, new, old);
            if new.is_none() {
                webhook::Rounds::default().mutate(&attributes, None).await?;
            }
            webhook::validate(&attributes).await
        })
    }
}

/// Lets webhooks change what is no object of its resource's kind, such as a Scale or an Eviction.
pub(crate) async fn admit_other(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let attributes = webhook::Attributes::other(call, kind, root, old);
    let mut rounds = webhook::Rounds::default();
    while rounds.mutate(&attributes, Some(object)).await? {}
    Ok(())
}

/// Lets webhooks refuse what is no object of its resource's kind.
pub(crate) async fn check_other(
    call: &Call<'_>,
    kind: &GroupVersionKind,
    root: &Struct,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    webhook::validate(&webhook::Attributes::other(call, kind, root, old).with(object)).await
}

fn check(call: &Call, new: &Value, old: Option<&Value>) -> Result<(), Status> {
    let kind = call.resource.kind();
    match (kind.gvk.kind.as_str(), call.path.subresource.as_str(), old) {
        _ if !kind.gvk.group.is_empty() => Ok(()),
        (_, _, Some(old)) if !old["metadata"]["deletionTimestamp"].is_null() => Ok(()),
        ("Pod", "", None) => {
            limits::check(call, new)?;
            runtime_class::check(call, new)
        }
        ("Pod", "resize", Some(_)) | ("PersistentVolumeClaim", "", _) => limits::check(call, new),
        _ => Ok(()),
    }
}

/// 403: the cluster's state forbids it.
fn forbidden(call: &Call, object: &Value, why: &str) -> Status {
    let metadata = &object["metadata"];
    let name = if metadata["name"].is_empty() { &metadata["generateName"] } else { &metadata["name"] };
    Status::forbidden(&call.resource.kind().resource(), name.str(), why)
}
