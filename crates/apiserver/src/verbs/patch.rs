//! `PATCH` of one object: JSON patch, merge patch, strategic merge patch. Server-side apply is in `apply`.

use bytes::Bytes;
use mizzen_object::decode::{Decoded, decode, decode_value, from_unstructured};
use mizzen_object::patch::{
    JsonPatch, JsonPatchError, StrategicError, go_text, merge, repeated_keys, strategic_merge,
};
use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::{Action, GroupVersionKind, Status, Violations};
use mizzen_registry::{BoxFuture, Resource, Update, UpdateFn};
use mizzen_value::{Value, json};

use super::{ResourceCall, apply, check_name};
use crate::admission::Checks;
use crate::decode::{self, BodyType, CheckedBody, FieldValidation, TypedBody};
use crate::field_manager::RequestFieldManager;
use crate::options;
use crate::request::Request;
use crate::response::Response;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(crate) async fn patch(call: &ResourceCall<'_>, action: Action) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        resource,
        ..
    } = call;
    let form = media_type(request, resource)?;
    if form == PatchType::Apply {
        return apply::apply(call, action).await;
    }
    let options = options::write_options(request, "PatchOptions")?;
    let (key, checks) = (call.key(), Checks::new(call));
    let mut change = Patched {
        call,
        form,
        strictness: options.strictness,
        checks: &checks,
    };
    let update = Update {
        action,
        user: request.user.clone(),
        dry_run: options.dry_run,
        gate: &checks,
        warnings: Some(call.notes),
        ..Update::new(resource, &key, &mut change)
    };
    let updated = server.registry.update(update).await;
    call.object(&checks.settle(updated).await?.object, 200)
}

/// The type of the patch, by its media type.
pub(crate) fn media_type(request: &Request, resource: &Resource) -> Result<PatchType, Status> {
    let header = request.header("content-type");
    match header.split(';').next().unwrap_or_default().trim() {
        JSON => Ok(PatchType::Json),
        MERGE => Ok(PatchType::Merge),
        STRATEGIC if !resource.is_custom() => Ok(PatchType::Strategic),
        APPLY => Ok(PatchType::Apply),
        _ if resource.is_custom() => Err(decode::unsupported(&[JSON, MERGE, APPLY].join(", "))),
        _ => Err(Status {
            details: Some(Box::default()),
            ..Status::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        }),
    }
}

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    /// Server-side apply.
    Apply,
}

struct Patched<'a> {
    call: &'a ResourceCall<'a>,
    form: PatchType,
    strictness: FieldValidation,
    checks: &'a Checks<'a>,
}

impl UpdateFn for Patched<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        Box::pin(self.patched(current.expect("the update does not create")))
    }
}

impl Patched<'_> {
    async fn patched(&mut self, current: &Value) -> Result<CanonicalObject, Status> {
        let kind = self.call.resource.kind();
        let patched = self.apply_patch(current)?;
        let object = match read_fast(&kind.gvk, &kind.root, patched) {
            Some(object) => object,
            None => {
                let catalog = &self.call.server.catalog;
                let problem =
                    |stated: &GroupVersionKind| decode::kind_problem(catalog, stated, &kind.gvk);
                let shape = PatchTarget {
                    gvk: &kind.gvk,
                    root: &kind.root,
                    has_hub: true,
                };
                let checked = read(problem, &shape, self.apply_patch(current)?, self.strictness)?;
                self.call.notes.warn_all(checked.warnings);
                checked.value
            }
        };
        let mut object = decode::apply_defaults(kind, object)
            .map_err(|problem| self.invalid(current, problem))?;
        check_name(self.call, &mut object)?;
        RequestFieldManager::new(self.call)
            .update_any(Some(current), &mut object)
            .await;
        self.checks.admit(Some(current), &mut object).await?;
        Ok(object)
    }

    fn apply_patch(&self, current: &Value) -> Result<PatchedDocument, Status> {
        let (root, body) = (&self.call.resource.kind().root, &self.call.request.body);
        apply_patch(root, self.form, body, current, self.strictness)
    }

    /// The error of a patched document that cannot be defaulted. The patch is applied again, because the error shows the document.
    fn invalid(&self, current: &Value, problem: String) -> Status {
        match self.apply_patch(current) {
            // Kubernetes: a strategic merge patch is converted elsewhere, and the error does not name the patch.
            Ok(PatchedDocument { shown: Some(_), .. }) => Status::unknown(problem),
            Ok(PatchedDocument { value, .. }) => invalid_patch(&json::to_string(&value), &problem),
            Err(status) => status,
        }
    }
}

/// The kind of a patched document.
pub(crate) struct PatchTarget<'a> {
    pub gvk: &'a GroupVersionKind,
    pub root: &'a Struct,
    /// Whether upstream has an internal version of the kind.
    pub has_hub: bool,
}

/// The fast path: a patched document of its kind without any error or warning, which is most often so. The document is
/// not written and parsed again.
fn read_fast(gvk: &GroupVersionKind, root: &Struct, patched: PatchedDocument) -> Option<Value> {
    let PatchedDocument {
        value,
        complaints,
        shown,
    } = patched;
    if !complaints.is_empty() {
        return None;
    }
    if shown.is_some() {
        let decoded = from_unstructured(root, value).ok()?;
        return decoded.complaints.is_empty().then_some(decoded.value);
    }
    match decode::states_exactly(&value, gvk) {
        true => decode_value(root, value),
        false => None,
    }
}

/// Decodes a patched document as an object of its kind. `problem` is the error for another kind.
pub(crate) fn read(
    problem: impl Fn(&GroupVersionKind) -> String,
    target: &PatchTarget,
    patched: PatchedDocument,
    strictness: FieldValidation,
) -> Result<CheckedBody, Status> {
    let PatchTarget { gvk, root, has_hub } = *target;
    let text = json::to_string(&patched.value);
    let shown = patched.shown.as_ref().map(go_text);
    let shown = shown.as_deref().unwrap_or(&text);
    // Kubernetes: the kind is not checked after a strategic merge patch.
    let strategic = patched.shown.is_some();
    if !strategic {
        check_kind(&text, gvk, root, problem).map_err(|problem| invalid_patch(shown, &problem))?;
    }
    let is_custom = root.rest().is_some();
    let decoded = match strategic {
        true => from_unstructured(root, patched.value),
        false if has_hub && !is_custom && patched.value["apiVersion"].is_empty() => {
            Ok(decode_without_version(root, &patched.value))
        }
        false => decode(root, text.as_bytes()),
    };
    let decoded = decoded.map_err(|error| invalid_patch(shown, &error.to_string()))?;
    let mut complaints = patched.complaints;
    complaints.extend(decoded.complaints);
    let read = decode::DecodedBody {
        value: decoded.value,
        strict_errors: complaints,
    };
    decode::check_strict(read, strictness)
        .map_err(|complaints| invalid_patch(shown, &decode::strict_error(&complaints)))
}

/// Kubernetes: a document without apiVersion is decoded as the internal version of its kind, whose fields have other names:
/// nothing is left of it, not even the name (apimachinery's serializer/json).
fn decode_without_version(root: &Struct, document: &Value) -> Decoded {
    let object_meta = root
        .field("metadata")
        .and_then(|field| field.ty.as_struct());
    let is_known = |name: &str| {
        matches!(name, "kind" | "apiVersion")
            || object_meta.is_some_and(|meta| meta.field(name).is_some())
    };
    let mut unknown: Vec<&str> = document
        .entries()
        .map(|(name, _)| name)
        .filter(|name| !is_known(name))
        .collect();
    unknown.sort_unstable();
    let complaints = unknown
        .iter()
        .map(|name| format!("unknown field {}", json::quote(name)))
        .collect();
    Decoded {
        value: Value::object(),
        complaints,
    }
}

/// A patched document that has not been decoded yet.
pub(crate) struct PatchedDocument {
    pub value: Value,
    pub complaints: Vec<String>,
    /// What errors show instead of the document.
    pub shown: Option<Value>,
}

/// Applies a patch of any type to an object.
pub(crate) fn apply_patch(
    root: &Struct,
    form: PatchType,
    patch: &Bytes,
    current: &Value,
    strictness: FieldValidation,
) -> Result<PatchedDocument, Status> {
    let mut value = current.clone();
    match form {
        PatchType::Json => {
            let failed = |error| json_patch_error(error, strictness);
            let patch = JsonPatch::parse(patch).map_err(failed)?;
            patch.apply(&mut value).map_err(failed)?;
            Ok(PatchedDocument {
                value,
                complaints: patch.complaints,
                shown: None,
            })
        }
        PatchType::Merge => {
            let (document, has_duplicates) = match strictness {
                // Kubernetes: without field validation a merge patch is not decoded before the merge, and a list
                // replaces the object (evanphx/json-patch).
                FieldValidation::Ignore => match json::parse_noting_duplicates(patch) {
                    Ok(document @ (Value::Map(_) | Value::List(_), _)) => document,
                    _ => return Err(Status::bad_request("Invalid JSON Patch")),
                },
                _ => merge_document(patch)?,
            };
            let complaints = duplicates(patch, has_duplicates);
            merge(&mut value, document);
            Ok(PatchedDocument {
                value,
                complaints,
                shown: None,
            })
        }
        PatchType::Strategic => strategic(root, patch, value),
        PatchType::Apply => unreachable!("what is applied is no patch"),
    }
}

/// The strict errors of a patch that was parsed.
fn duplicates(patch: &Bytes, has_duplicates: bool) -> Vec<String> {
    match has_duplicates {
        true => repeated_keys(patch),
        false => Vec::new(),
    }
}

/// The document of a merge patch, and whether it has duplicate keys.
fn merge_document(patch: &Bytes) -> Result<(Value, bool), Status> {
    let invalid = |problem: String| Status::bad_request(format!("error decoding patch: {problem}"));
    let (document, has_duplicates) =
        json::parse_noting_duplicates(patch).map_err(|error| invalid(error.to_string()))?;
    if let Some(literal) = json::overflow(&document) {
        return Err(invalid(json::overflow_error(literal)));
    }
    match document {
        document @ Value::Map(_) => Ok((document, has_duplicates)),
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => {
            let word = other.go_word();
            Err(invalid(format!(
                "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

fn strategic(root: &Struct, patch: &Bytes, mut value: Value) -> Result<PatchedDocument, Status> {
    let (mut document, has_duplicates) = json::parse_noting_duplicates(patch)
        .map_err(|error| Status::bad_request(error.to_string()))?;
    if let Some(literal) = json::overflow(&document) {
        return Err(Status::bad_request(json::overflow_error(literal)));
    }
    let complaints = duplicates(patch, has_duplicates);
    strategic_merge(root, &mut value, &mut document).map_err(|error| match error {
        StrategicError::BadRequest(message) => Status::bad_request(message),
        StrategicError::Unprocessable(_) => unprocessable(),
        StrategicError::Internal(message) => Status::unknown(message),
    })?;
    // Errors show what the merge has left of the patch, as upstream.
    Ok(PatchedDocument {
        value,
        complaints,
        shown: Some(document),
    })
}

/// The decode error of a JSON patch without field validation, for which Go uses another type (evanphx/json-patch).
pub(crate) fn undecoded(problem: &str) -> String {
    let problem = problem.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch");
    problem.replace("handlers.jsonPatchOp", "jsonpatch.Operation")
}

/// The Status of a JSON patch that failed. Kubernetes: with field validation the patch is decoded once more before, and the
/// message differs (handlers/patch.go).
fn json_patch_error(error: JsonPatchError, strictness: FieldValidation) -> Status {
    match error {
        // Kubernetes: the fields of an operation are decoded when it is applied.
        JsonPatchError::Malformed(problem)
            if strictness == FieldValidation::Ignore && problem.ends_with(" of type string") =>
        {
            unprocessable()
        }
        JsonPatchError::Malformed(problem) if strictness == FieldValidation::Ignore => {
            Status::bad_request(undecoded(&problem))
        }
        JsonPatchError::Malformed(problem) => {
            Status::bad_request(format!("error decoding patch: {problem}"))
        }
        JsonPatchError::TooLong(_) => Status::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {error}"),
        ),
        JsonPatchError::Failed(_) => unprocessable(),
    }
}

/// 422: the patch cannot be applied to the object.
fn unprocessable() -> Status {
    Status {
        details: Some(Box::default()),
        ..Status::failure(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }
}

/// Checks that the patched document still has its kind.
fn check_kind(
    text: &str,
    expected: &GroupVersionKind,
    root: &Struct,
    problem: impl Fn(&GroupVersionKind) -> String,
) -> Result<(), String> {
    let document = TypedBody::open(BodyType::Json, text.as_bytes())?;
    if root.rest().is_some() {
        return match document.states_kind() {
            true => Ok(()),
            false => Err(format!("Object 'Kind' is missing in '{text}'")),
        };
    }
    let stated = document.gvk(expected)?;
    if stated == *expected {
        Ok(())
    } else {
        Err(problem(&stated))
    }
}

/// 422: the patched document is invalid.
fn invalid_patch(shown: &str, problem: &str) -> Status {
    let nothing = GroupVersionKind {
        group: "".into(),
        version: "".into(),
        kind: "".into(),
    };
    let mut violations = Violations::default();
    violations.invalid("patch", shown, problem);
    Status::invalid(&nothing, "", &violations)
}
