//! Server-side apply.

use mizzen_object::decode::from_unstructured;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Action, Kind, Status};
use mizzen_registry::{BoxFuture, Update, UpdateFn};
use mizzen_value::time::to_unix;
use mizzen_value::{Value, yaml};

use super::{ResourceCall, check_name};
use crate::admission::Checks;
use crate::decode::{self, FieldValidation};
use crate::field_manager::RequestFieldManager;
use crate::options;
use crate::response::Response;

pub(crate) async fn apply(call: &ResourceCall<'_>, action: Action) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        resource,
        ..
    } = call;
    let options = options::write_options(request, "PatchOptions")?;
    let (config, complaint) = config(call)?;
    let (key, checks) = (call.key(), Checks::new(call));
    let rules = &resource.kind().rules;
    let strictness = options.strictness;
    let mut change = Applied {
        call,
        config,
        complaint,
        strictness,
        checks: &checks,
    };
    let update = Update {
        action,
        user: request.user.clone(),
        dry_run: options.dry_run,
        applies: true,
        // Kubernetes: apply to a subresource does not create the object, except for one kind.
        create: call.path.subresource.is_empty()
            || rules.create_on_update
            || action == Action::Status && rules.create_on_status_apply,
        gate: &checks,
        warnings: Some(call.notes),
        ..Update::new(resource, &key, &mut change)
    };
    let updated = server.registry.update(update).await;
    let updated = checks.settle(updated).await?;
    call.object(&updated.object, if updated.created { 201 } else { 200 })
}

/// The applied configuration, and the strict errors of its YAML. Of a duplicate key the last one counts.
pub(crate) fn config(call: &ResourceCall) -> Result<(Value, Option<String>), Status> {
    let document = yaml::read(&call.request.body).map_err(|error| {
        Status::bad_request(format!(
            "error decoding YAML: error converting YAML to JSON: {error}"
        ))
    })?;
    match document.value {
        value @ (Value::Map(_) | Value::Null) => Ok((value, document.complaint)),
        other => Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of \
             type map[string]interface {{}}",
            other.go_word()
        ))),
    }
}

/// Rejects duplicate keys, or warns of them, as `fieldValidation` says. Kubernetes: after the merge, so that unknown fields
/// are reported first, and alone (`applyPatcher` in handlers/patch.go).
pub(super) fn check_duplicates(
    call: &ResourceCall,
    complaint: Option<&str>,
    strictness: FieldValidation,
) -> Result<(), Status> {
    match (complaint, strictness) {
        (Some(complaint), FieldValidation::Strict) => Err(Status::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {complaint}"
        ))),
        (Some(complaint), FieldValidation::Warn) => {
            call.notes.warn_all(decode::as_warnings(complaint));
            Ok(())
        }
        _ => Ok(()),
    }
}

struct Applied<'a> {
    call: &'a ResourceCall<'a>,
    config: Value,
    complaint: Option<String>,
    strictness: FieldValidation,
    checks: &'a Checks<'a>,
}

impl UpdateFn for Applied<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        Box::pin(self.applied(current))
    }
}

impl Applied<'_> {
    async fn applied(&mut self, current: Option<&Value>) -> Result<CanonicalObject, Status> {
        let kind = self.call.resource.kind();
        let merged = RequestFieldManager::new(self.call)
            .apply_any(current, &self.config)
            .await?;
        check_duplicates(self.call, self.complaint.as_deref(), self.strictness)?;
        let mut object = self.typed(kind, merged)?;
        if current.is_none() {
            self.check_new(&object["metadata"])?;
        }
        check_name(self.call, &mut object)?;
        self.checks.admit(current, &mut object).await?;
        Ok(object)
    }

    /// Apply creates an object that does not exist, unless the configuration has a uid.
    fn check_new(&self, metadata: &Value) -> Result<(), Status> {
        let uid = metadata["uid"].str();
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(
                &self.call.resource.kind().resource(),
                &self.call.path.name,
                &why,
            ));
        }
        Ok(())
    }

    /// Converts the merged object to its kind.
    fn typed(&self, kind: &Kind, mut merged: Value) -> Result<CanonicalObject, Status> {
        // Kubernetes: the metadata of a custom object is not decoded here, and an invalid time is dropped
        // (apimachinery, meta/v1/unstructured).
        if self.call.resource.is_custom() {
            let metadata = merged.entry("metadata");
            for name in ["creationTimestamp", "deletionTimestamp"] {
                if metadata[name]
                    .as_str()
                    .is_some_and(|text| to_unix(text).is_none())
                {
                    metadata.remove(name);
                }
            }
        }
        let (metadata, gvk) = (&self.config["metadata"], &kind.gvk);
        let shown = || {
            format!(
                "{}/{}; {gvk}",
                metadata["namespace"].str(),
                metadata["name"].str()
            )
        };
        let restored = from_unstructured(&kind.root, merged).map_err(|error| {
            Status::unknown(format!(
                "failed to convert new object ({}) to proper version: unable to convert unstructured object to {gvk}: \
                 {error}",
                shown()
            ))
        })?;
        decode::apply_defaults(kind, restored.value).map_err(|problem| {
            Status::unknown(format!(
                "failed to convert to unversioned ({}): {problem}",
                shown()
            ))
        })
    }
}
