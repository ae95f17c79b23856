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

pub(crate) use service::{Claim, Claims};

use mizzen_object::{Status, Value};
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
    definitions::admit(&write, object)?;
    namespace::admit(&write, object)?;
    let kind = write.call.resource.kind();
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => {
            limits::admit(&write, object)?;
            pod::admit(&write, object)?;
            runtime_class::admit(&write, object)
        }
        ("", "Service") => service::admit(&mut write, object),
        ("storage.k8s.io", "VolumeAttributesClass") => {
            protection::admit(&write, object);
            Ok(())
        }
        _ => Ok(()),
    }?;
    escalation::check(write.call, write.old, object).await
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
        let outcome = new.map_or(Ok(()), |new| check(self.0, new, old));
        Box::pin(async { outcome })
    }
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
