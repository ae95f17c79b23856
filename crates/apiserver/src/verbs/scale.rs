//! `/scale`: the number of replicas of anything that has one, in one form for all.

use mizzen_object::own::ScaleOwners;
use mizzen_object::{GroupVersionKind, Path, Status, Value, Violations, json, schema, value};
use mizzen_registry::{Change, Future, NoGate, Object, UpdateOptions};

use super::{Call, check_name, patch, set_namespace};
use crate::answer::{self, Answer, Form, warn};
use crate::intake::{self, FieldValidation};
use crate::options;
use crate::ownership::Owning;

/// Where the versions of kinds that scale keep their replicas.
const REPLICAS: [(&str, Option<&str>); 2] =
    [("apps/v1", Some("spec.replicas")), ("v1", Some("spec.replicas"))];

fn scale_kind() -> GroupVersionKind {
    GroupVersionKind { group: "autoscaling".into(), version: "v1".into(), kind: "Scale".into() }
}

pub(crate) fn get(call: &Call) -> Result<Answer, Status> {
    let version = call.request.query.text("resourceVersion");
    let object = call.server.registry.get(call.resource, &call.key(), version)?;
    Ok(show(call, &scale_of(&object.value())))
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Answer, Status> {
    let options = options::write_options(call.request, "UpdateOptions")?;
    let root = &call.server.types.scale;
    let intake = intake::other(&call.server.catalog, &scale_kind(), root, call.request, options.strictness)?;
    let mut scale = intake.value;
    set_namespace(call.path, scale.entry("metadata"))?;
    check_name(call.path, &mut scale)?;
    let mut change = Rescale { call, wanted: Wanted::Exactly(scale), strictness: options.strictness };
    store(call, &mut change, options.dry_run, &intake.warnings).await
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Answer, Status> {
    let form = patch::media_type(call)?;
    let options = options::write_options(call.request, "PatchOptions")?;
    let mut change = Rescale { call, wanted: Wanted::Patched(form), strictness: options.strictness };
    store(call, &mut change, options.dry_run, &[]).await
}

async fn store(
    call: &Call<'_>,
    change: &mut Rescale<'_>,
    dry_run: bool,
    warnings: &[String],
) -> Result<Answer, Status> {
    let options = UpdateOptions {
        user: call.request.user.who(),
        dry_run,
        uid_precondition: true,
        ..UpdateOptions::default()
    };
    let mut ignored = Vec::new();
    let updated = call
        .server
        .registry
        .update(call.resource, &call.key(), change, &options, &NoGate, &mut ignored)
        .await?;
    let mut answer = show(call, &scale_of(&updated.object.value()));
    warn(&mut answer, warnings);
    Ok(answer)
}

fn show(call: &Call, scale: &Value) -> Answer {
    let types = &call.server.types;
    let object = Object::unstored(json::to_string(scale).into());
    match call.accept.form {
        Form::Whole => answer::value(&scale_kind(), Some(&types.scale), scale, call.accept, 200),
        Form::Metadata(_) => answer::object(types, call.resource, &object, call.accept, "", 0, 200),
        Form::Table(version) => {
            let mut cells = vec![scale["metadata"]["name"].clone()];
            cells.extend(mizzen_kinds::scale_cells(scale, call.server.registry.now()));
            let table = answer::single(&mizzen_kinds::scale_columns(), cells, &object, version);
            answer::answer(200, "application/json", table)
        }
    }
}

/// An object's Scale.
fn scale_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut meta = Value::object();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !metadata[field].is_null() {
            meta.set(field, metadata[field].clone());
        }
    }
    let mut scale = value!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": null, "spec": {}, "status": {} });
    scale.set("metadata", meta);
    let replicas = object["spec"]["replicas"].int();
    if replicas != 0 {
        scale.entry("spec").set("replicas", replicas);
    }
    scale.entry("status").set("replicas", object["status"]["replicas"].int());
    let selector = selector_text(&object["spec"]["selector"]);
    if !selector.is_empty() {
        scale.entry("status").set("selector", selector);
    }
    scale
}

/// A label selector as text: `a=b,c in (d,e)`, sorted by key. An older kind has the labels alone.
fn selector_text(selector: &Value) -> String {
    let structured = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let labels = if structured { &selector["matchLabels"] } else { selector };
    let mut terms: Vec<(String, String)> = labels
        .entries()
        .filter(|(_, value)| value.as_str().is_some())
        .map(|(key, value)| (key.to_string(), format!("{key}={}", value.str())))
        .collect();
    terms.extend(selector["matchExpressions"].list().iter().map(|expression| {
        let key = expression["key"].str();
        let mut values: Vec<&str> = expression["values"].list().iter().map(Value::str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression["operator"].str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_string(),
        };
        (key.to_string(), text)
    }));
    terms.sort();
    terms.into_iter().map(|term| term.1).collect::<Vec<_>>().join(",")
}

enum Wanted {
    Exactly(Value),
    Patched(patch::Form),
}

/// Changes an object so that its Scale is as wanted.
struct Rescale<'a> {
    call: &'a Call<'a>,
    wanted: Wanted,
    strictness: FieldValidation,
}

impl Change for Rescale<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        let outcome = self.rescaled(current.expect("a scale belongs to what is there"));
        Box::pin(async { outcome })
    }
}

impl Rescale<'_> {
    fn rescaled(&self, current: &Value) -> Result<Value, Status> {
        let scale = match &self.wanted {
            Wanted::Exactly(scale) => scale.clone(),
            Wanted::Patched(form) => self.patched(*form, current)?,
        };
        validate(&scale)?;
        let mut object = current.clone();
        let owners = self.owners(current, scale.clone());
        let metadata = object.entry("metadata");
        metadata.set("managedFields", owners);
        metadata.set("resourceVersion", scale["metadata"]["resourceVersion"].clone());
        if !scale["metadata"]["uid"].is_empty() {
            metadata.set("uid", scale["metadata"]["uid"].clone());
        }
        object.entry("spec").set("replicas", scale["spec"]["replicas"].int());
        Ok(object)
    }

    fn patched(&self, form: patch::Form, current: &Value) -> Result<Value, Status> {
        let root = &self.call.server.types.scale;
        let mut before = scale_of(current);
        schema::canonical(root, &mut before);
        let mut scale = match form {
            patch::Form::Apply => self.applied(current, before)?,
            _ => {
                let outcome = patch::apply_patch(root, form, &self.call.request.body, &before)?;
                let catalog = &self.call.server.catalog;
                patch::read(catalog, &scale_kind(), root, outcome, self.strictness)?.value
            }
        };
        check_name(self.call.path, &mut scale)?;
        Ok(scale)
    }

    fn applied(&self, current: &Value, mut before: Value) -> Result<Value, Status> {
        let config = super::apply::config(self.call)?;
        before.entry("metadata").set("managedFields", self.scale_owners(current).to_scale());
        let root = &self.call.server.types.scale;
        Owning::new(self.call).apply_as(&scale_kind(), root, Some(&before), &config)
    }

    /// Who owns what in the object after its Scale has become `scale`.
    fn owners(&self, current: &Value, mut scale: Value) -> Value {
        let owners = self.scale_owners(current);
        if !matches!(self.wanted, Wanted::Patched(patch::Form::Apply)) {
            let root = &self.call.server.types.scale;
            let mut before = scale_of(current);
            schema::canonical(root, &mut before);
            before.entry("metadata").set("managedFields", owners.to_scale());
            scale.entry("metadata").set("managedFields", owners.to_scale());
            Owning::new(self.call).update_as(&scale_kind(), root, &before, &mut scale);
        }
        owners.to_object(&scale["metadata"]["managedFields"])
    }

    fn scale_owners<'b>(&'b self, current: &'b Value) -> ScaleOwners<'b> {
        let api_version = current["apiVersion"].str();
        ScaleOwners { object: current, api_version, paths: &REPLICAS }
    }
}

fn validate(scale: &Value) -> Result<(), Status> {
    let mut violations = Violations::default();
    let replicas = scale["spec"]["replicas"].int();
    if replicas < 0 {
        let spec = Path::new("spec");
        violations.invalid(spec.child("replicas"), replicas, "must be greater than or equal to 0");
        return Err(Status::invalid(&scale_kind(), scale["metadata"]["name"].str(), &violations));
    }
    Ok(())
}
