//! `PATCH` of one object: JSON Patch, merge patch, strategic merge patch. What is applied is in `apply`.

use bytes::Bytes;
use mizzen_object::decode::{Decoded, decode, restore};
use mizzen_object::patch::{
    JsonPatch, JsonPatchError, StrategicError, go_text, merge, repeated_keys, strategic_merge,
};
use mizzen_object::schema::Struct;
use mizzen_object::{Action, GroupVersionKind, Status, Violations};
use mizzen_registry::{Change, Future, Resource, Update};
use mizzen_value::{Value, json};

use super::{Call, apply, check_name};
use crate::admission::Checks;
use crate::answer::Answer;
use crate::decode::{self, BodyType, CheckedBody, FieldValidation, TypedBody};
use crate::field_manager::RequestFieldManager;
use crate::options;
use crate::request::Request;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(crate) async fn patch(call: &Call<'_>, action: Action) -> Result<Answer, Status> {
    let Call {
        server,
        request,
        resource,
        ..
    } = call;
    let form = media_type(request, resource)?;
    if form == Form::Apply {
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

/// The form of the patch.
pub(crate) fn media_type(request: &Request, resource: &Resource) -> Result<Form, Status> {
    let header = request.header("content-type");
    match header.split(';').next().unwrap_or_default().trim() {
        JSON => Ok(Form::Json),
        MERGE => Ok(Form::Merge),
        STRATEGIC if !resource.is_custom() => Ok(Form::Strategic),
        APPLY => Ok(Form::Apply),
        _ if resource.is_custom() => Err(decode::unsupported(&[JSON, MERGE, APPLY].join(", "))),
        _ => Err(Status {
            details: Some(Box::default()),
            ..Status::failure(415, "UnsupportedMediaType", "415: Unsupported Media Type")
        }),
    }
}

/// The form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Merge,
    Strategic,
    /// Not a patch of what is there but what the client wants to be there.
    Apply,
}

struct Patched<'a> {
    call: &'a Call<'a>,
    form: Form,
    strictness: FieldValidation,
    checks: &'a Checks<'a>,
}

impl Change for Patched<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        Box::pin(self.patched(current.expect("a patch changes what is there")))
    }
}

impl Patched<'_> {
    async fn patched(&mut self, current: &Value) -> Result<Value, Status> {
        let kind = self.call.resource.kind();
        let outcome = apply_patch(
            &kind.root,
            self.form,
            &self.call.request.body,
            current,
            self.strictness,
        )?;
        let catalog = &self.call.server.catalog;
        let problem = |said: &GroupVersionKind| decode::kind_problem(catalog, said, &kind.gvk);
        let shape = Target {
            gvk: &kind.gvk,
            root: &kind.root,
            has_hub: true,
        };
        let intake = read(problem, &shape, outcome, self.strictness)?;
        self.call.notes.warn_all(intake.warnings);
        let mut object = intake.value;
        decode::apply_defaults(kind, &mut object)
            .map_err(|problem| self.unfit(current, problem))?;
        check_name(self.call.path, &mut object)?;
        RequestFieldManager::new(self.call)
            .update_any(Some(current), &mut object)
            .await;
        self.checks.admit(Some(current), &mut object).await?;
        Ok(object)
    }

    /// The document is patched once more, to be shown as it was.
    fn unfit(&self, current: &Value, problem: String) -> Status {
        let (root, body) = (&self.call.resource.kind().root, &self.call.request.body);
        match apply_patch(root, self.form, body, current, self.strictness) {
            // Kubernetes: here it is converted by itself, and nobody says of what the problem is.
            Ok(Outcome { shown: Some(_), .. }) => Status::unknown(problem),
            Ok(Outcome { value, .. }) => invalid_patch(&json::to_string(&value), &problem),
            Err(status) => status,
        }
    }
}

/// What a patched document is read as.
pub(crate) struct Target<'a> {
    pub gvk: &'a GroupVersionKind,
    pub root: &'a Struct,
    /// Whether upstream has an internal form of the kind, beside those of its versions.
    pub has_hub: bool,
}

/// Reads a patched document as an object of its kind again. `problem` is what is wrong with one of another kind.
pub(crate) fn read(
    problem: impl Fn(&GroupVersionKind) -> String,
    target: &Target,
    patched: Outcome,
    strictness: FieldValidation,
) -> Result<CheckedBody, Status> {
    let Target { gvk, root, has_hub } = *target;
    let text = json::to_string(&patched.value);
    let shown = patched.shown.as_deref().unwrap_or(&text);
    // Kubernetes: a strategic merge patch is not asked what kind it made of the object.
    let strategic = patched.shown.is_some();
    if !strategic {
        check_kind(&text, gvk, root, problem).map_err(|problem| invalid_patch(shown, &problem))?;
    }
    let is_custom = root.rest().is_some();
    let decoded = match strategic {
        true => restore(root, patched.value),
        false if has_hub && !is_custom && patched.value["apiVersion"].is_empty() => {
            Ok(versionless(root, &patched.value))
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

/// Kubernetes: what does not say its version is read as the internal form of its kind, whose fields have other names:
/// nothing of it is left, and it has no name (apimachinery's serializer/json).
fn versionless(root: &Struct, document: &Value) -> Decoded {
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

/// A patched document before it is read as an object.
pub(crate) struct Outcome {
    pub value: Value,
    pub complaints: Vec<String>,
    /// What error messages show instead of the document.
    pub shown: Option<String>,
}

/// Applies a patch of any form to an object.
pub(crate) fn apply_patch(
    root: &Struct,
    form: Form,
    patch: &Bytes,
    current: &Value,
    strictness: FieldValidation,
) -> Result<Outcome, Status> {
    let mut value = current.clone();
    match form {
        Form::Json => {
            let refused = |error| refused(error, strictness);
            let patch = JsonPatch::parse(patch).map_err(refused)?;
            patch.apply(&mut value).map_err(refused)?;
            Ok(Outcome {
                value,
                complaints: patch.complaints,
                shown: None,
            })
        }
        Form::Merge => {
            let document = match strictness {
                FieldValidation::Ignore => unchecked_document(patch)?,
                _ => merge_document(patch)?,
            };
            let complaints = repeated_keys(patch);
            merge(&mut value, document);
            Ok(Outcome {
                value,
                complaints,
                shown: None,
            })
        }
        Form::Strategic => strategic(root, patch, value),
        Form::Apply => unreachable!("what is applied is no patch"),
    }
}

/// A merge patch whose fields are not validated is not decoded before it is merged. Kubernetes: a list is taken for the
/// new object (evanphx/json-patch).
fn unchecked_document(patch: &Bytes) -> Result<Value, Status> {
    match json::parse(patch) {
        Ok(document @ (Value::Map(_) | Value::List(_))) => Ok(document),
        _ => Err(Status::bad_request("Invalid JSON Patch")),
    }
}

fn merge_document(patch: &Bytes) -> Result<Value, Status> {
    let refuse = |problem: String| Status::bad_request(format!("error decoding patch: {problem}"));
    let document = json::parse(patch).map_err(|error| refuse(error.to_string()))?;
    if let Some(literal) = json::overflow(&document) {
        return Err(refuse(json::overflow_error(literal)));
    }
    match document {
        document @ Value::Map(_) => Ok(document),
        Value::Null => Err(Status::bad_request("Invalid JSON Patch")),
        other => {
            let word = other.go_word();
            Err(refuse(format!(
                "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

fn strategic(root: &Struct, patch: &Bytes, mut value: Value) -> Result<Outcome, Status> {
    let mut document =
        json::parse(patch).map_err(|error| Status::bad_request(error.to_string()))?;
    if let Some(literal) = json::overflow(&document) {
        return Err(Status::bad_request(json::overflow_error(literal)));
    }
    let complaints = repeated_keys(patch);
    strategic_merge(root, &mut value, &mut document).map_err(|error| match error {
        StrategicError::BadRequest(message) => Status::bad_request(message),
        StrategicError::Unprocessable(_) => unprocessable(),
        StrategicError::Internal(message) => Status::unknown(message),
    })?;
    // What is left of the patch after merging is what upstream shows.
    Ok(Outcome {
        value,
        complaints,
        shown: Some(go_text(&document)),
    })
}

/// Why a JSON patch cannot be read whose fields are not validated: it is read into another type then (evanphx/json-patch).
pub(crate) fn undecoded(problem: &str) -> String {
    let problem = problem.replace("[]handlers.jsonPatchOp", "jsonpatch.Patch");
    problem.replace("handlers.jsonPatchOp", "jsonpatch.Operation")
}

/// Kubernetes: a patch whose fields are validated is decoded for that first, which shows in the words
/// (handlers/patch.go).
fn refused(error: JsonPatchError, strictness: FieldValidation) -> Status {
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

/// 422: the patch does not fit the object.
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

/// Why the patched document is not of its kind any more.
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
    let said = document.gvk(expected)?;
    if said == *expected {
        Ok(())
    } else {
        Err(problem(&said))
    }
}

/// 422: what came out of a patch makes no sense.
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
