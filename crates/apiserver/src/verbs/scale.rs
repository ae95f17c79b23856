//! The `scale` subresource: the number of replicas of an object.
//!
//! A Scale is handled as that of autoscaling/v1. [`ScaleVersion`] is the version that the client reads and writes: removed
//! versions of workloads have their own.

use std::borrow::Cow;
use std::sync::Arc;

use mizzen_object::managed_fields::ScaleHandler;
use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::select::selector_text;
use mizzen_object::{Column, GroupVersionKind, Kind, Path, ScalePaths, Status, Violations, schema};
use mizzen_registry::{BoxFuture, Object, Update, UpdateFn, ValidatingAdmission};
use mizzen_value::{Value, json, time, value};

use super::{ResourceCall, apply, check_metadata_name, patch, set_namespace};
use crate::admission;
use crate::decode::{self, FieldValidation};
use crate::field_manager::RequestFieldManager;
use crate::options;
use crate::response::{self, Body, Response, ResponseForm};

/// The replicas of a custom object that has none.
const UNSET: i64 = i32::MIN as i64;

/// The columns of a Scale, which no kind's data describes.
const COLUMNS: [&str; 4] = [
    "Name string at=.metadata.name",
    "Desired integer",
    "Available integer",
    "Age string",
];

fn scale_kind() -> GroupVersionKind {
    GroupVersionKind {
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
    }
}

/// The version of a Scale, and its schema.
struct ScaleVersion {
    gvk: GroupVersionKind,
    root: Arc<Struct>,
}

impl ScaleVersion {
    fn of(call: &ResourceCall) -> ScaleVersion {
        let below = call
            .resource
            .kind()
            .subresource("scale")
            .and_then(|below| below.kind.clone());
        let gvk = below.unwrap_or_else(scale_kind);
        let types = &call.server.types;
        let root = types.subresource(&gvk).unwrap_or(&types.scale).clone();
        ScaleVersion { gvk, root }
    }

    fn is_current(&self) -> bool {
        self.gvk == scale_kind()
    }

    /// Converts a Scale from autoscaling/v1 to this version. Kubernetes: older ones have the selector twice, as text and, if
    /// it has only labels, as a map (pkg/apis/apps/v1beta1/conversion.go).
    fn to_version(&self, scale: &Value) -> Value {
        let mut scale = scale.clone();
        if self.is_current() {
            return scale;
        }
        scale.set("apiVersion", self.gvk.api_version());
        let status = scale.entry("status");
        if let Some(text) = status.remove("selector") {
            let mut labels = Value::object();
            let is_labels_only = text.str().split(',').all(|term| {
                let label = term
                    .split_once('=')
                    .filter(|(key, _)| !key.contains([' ', '(', '!']));
                label.is_some_and(|(key, value)| {
                    labels.set(key, value);
                    true
                })
            });
            if is_labels_only {
                status.set("selector", labels);
            }
            status.set("targetSelector", text);
        }
        scale
    }

    /// Converts a Scale from this version to autoscaling/v1.
    fn to_current(&self, mut scale: Value) -> Value {
        if self.is_current() {
            return scale;
        }
        scale.set("apiVersion", scale_kind().api_version());
        let status = scale.entry("status");
        let labels = status.remove("selector").unwrap_or_default();
        let text = status
            .remove("targetSelector")
            .filter(|text| !text.is_empty());
        status.set(
            "selector",
            text.unwrap_or_else(|| scale_selector(&labels).into()),
        );
        scale
    }
}

pub(crate) async fn get(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let version = call.request.query.text("resourceVersion");
    let object = call
        .server
        .registry
        .read(call.resource, &call.key(), version)
        .await?
        .value();
    let path = &paths(call).spec_replicas;
    if call.resource.is_custom() && object.at(plain(path)).is_null() {
        return Err(Status::internal(format!(
            "the spec replicas field {} does not exist",
            json::quote(path)
        )));
    }
    Ok(respond(call, &scale_of(call, &object)))
}

/// The paths of the fields that the Scale shows.
fn paths<'a>(call: &'a ResourceCall) -> Cow<'a, ScalePaths> {
    match &call.resource.kind().scale {
        Some(paths) => Cow::Borrowed(paths),
        None => Cow::Owned(ScalePaths::default()),
    }
}

/// A path without its leading dot.
fn plain(path: &str) -> &str {
    path.strip_prefix('.').unwrap_or(path)
}

pub(crate) async fn update(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let options = options::write_options(call.request, "UpdateOptions")?;
    let version = ScaleVersion::of(call);
    let scale = decode::decode_body_as(call, &version.gvk, None, &version.root, options.strictness)
        // Kubernetes: the typer of custom resources does not know the Scale that the error should name, so that every
        // decoding error reads the same (apiextensions-apiserver/pkg/apiserver/customresource_handler.go).
        .map_err(|status| match status.reason.as_str() {
            "BadRequest" if call.resource.is_custom() => Status::bad_request(
                "no kind is registered for the type v1.Scale in scheme \"pkg/apiserver/customresource_handler.go:781\"",
            ),
            _ => status,
        })?;
    let mut scale = version.to_current(scale);
    set_namespace(call.path, scale.entry("metadata"))?;
    check_metadata_name(call.path, &scale["metadata"])?;
    let mut change = Rescale {
        call,
        update: ScaleUpdate::Exactly(scale),
        strictness: options.strictness,
    };
    store(call, &mut change, options.dry_run).await
}

pub(crate) async fn patch(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let form = patch::media_type(call.request, call.resource)?;
    let options = options::write_options(call.request, "PatchOptions")?;
    let mut change = Rescale {
        call,
        update: ScaleUpdate::Patched(form),
        strictness: options.strictness,
    };
    store(call, &mut change, options.dry_run).await
}

async fn store(
    call: &ResourceCall<'_>,
    change: &mut Rescale<'_>,
    dry_run: bool,
) -> Result<Response, Status> {
    let (key, checks) = (call.key(), ScaleValidation(call));
    let update = Update {
        user: call.request.user.clone(),
        dry_run,
        uid_precondition: matches!(change.update, ScaleUpdate::Exactly(_)),
        gate: &checks,
        ..Update::new(call.resource, &key, change)
    };
    let updated = call.server.registry.update(update).await?;
    Ok(respond(call, &scale_of(call, &updated.object.value())))
}

fn respond(call: &ResourceCall, scale: &Value) -> Response {
    let version = ScaleVersion::of(call);
    let scale = &version.to_version(scale);
    let object = Object::unstored(json::to_string(scale).into());
    match call.accept.form {
        ResponseForm::Whole => {
            response::value(&version.gvk, Some(&version.root), scale, call.accept, 200)
        }
        ResponseForm::Metadata(_) => call.renderer().object(&object, 200),
        ResponseForm::Table(version) => {
            let columns = COLUMNS.map(|text| Column::parse(text).expect("these are columns"));
            let cells = cells(scale, call.server.registry.now());
            let table = response::single_row(&columns, cells, &object, version);
            response::with_body(200, "application/json", Body::line(table))
        }
    }
}

/// The cells of [`COLUMNS`].
fn cells(scale: &Value, now: i64) -> Vec<Value> {
    let made = time::to_unix(scale["metadata"]["creationTimestamp"].str());
    vec![
        scale["metadata"]["name"].clone(),
        scale["spec"]["replicas"].int().into(),
        scale["status"]["replicas"].int().into(),
        made.map_or("<unknown>".into(), |made| time::age(now - made))
            .into(),
    ]
}

/// The Scale of an object.
fn scale_of(call: &ResourceCall, object: &Value) -> Value {
    let paths = paths(call);
    let found = |path: &str| object.at(plain(path));
    let metadata = &object["metadata"];
    let mut meta = Value::object();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if !metadata[field].is_null() {
            meta.set(field, metadata[field].clone());
        }
    }
    let mut scale = value!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": null, "spec": {}, "status": {} });
    scale.set("metadata", meta);
    let replicas = found(&paths.spec_replicas).int();
    if replicas != 0 {
        scale.entry("spec").set("replicas", replicas);
    }
    scale
        .entry("status")
        .set("replicas", found(&paths.status_replicas).int());
    let selector = match paths.label_selector.as_str() {
        "" => String::new(),
        path => scale_selector(found(path)),
    };
    if !selector.is_empty() {
        scale.entry("status").set("selector", selector);
    }
    scale
}

/// A label selector as text. An older kind has only labels, and a custom one the text.
fn scale_selector(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.into();
    }
    match selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
        true => selector_text(selector),
        false => selector_text(&value!({ "matchLabels": (selector.clone()) })),
    }
}

/// How a Scale is changed.
enum ScaleUpdate {
    Exactly(Value),
    Patched(patch::PatchType),
}

/// Applies a change of its Scale to an object.
struct Rescale<'a> {
    call: &'a ResourceCall<'a>,
    update: ScaleUpdate,
    strictness: FieldValidation,
}

impl UpdateFn for Rescale<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let current = current.expect("the update does not create");
        Box::pin(async { self.rescaled(current).await.map(Into::into) })
    }
}

/// Validating admission of the Scale.
struct ScaleValidation<'a>(&'a ResourceCall<'a>);

impl ValidatingAdmission for ScaleValidation<'_> {
    fn check<'a>(
        &'a self,
        new: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let version = ScaleVersion::of(self.0);
            let scale = |object: &Value| version.to_version(&scale_of(self.0, object));
            let (new, old) = (new.map(scale).unwrap_or_default(), old.map(scale));
            admission::check_other(self.0, &version.gvk, &version.root, &new, old.as_ref()).await
        })
    }
}

impl Rescale<'_> {
    async fn rescaled(&self, current: &Value) -> Result<Value, Status> {
        let scale = match &self.update {
            ScaleUpdate::Exactly(scale) => scale.clone(),
            ScaleUpdate::Patched(form) => self.patched(*form, current)?,
        };
        let version = ScaleVersion::of(self.call);
        let old = version.to_version(&scale_of(self.call, current));
        let mut shown = version.to_version(&scale);
        admission::admit_other(
            self.call,
            &version.gvk,
            &version.root,
            &mut shown,
            Some(&old),
        )
        .await?;
        let scale = version.to_current(shown);
        let replicas = scale["spec"]["replicas"].int();
        if !self.call.resource.is_custom() && replicas < 0 {
            let mut violations = Violations::default();
            violations.invalid(
                Path::new("spec").child("replicas"),
                replicas,
                "must be greater than or equal to 0",
            );
            let name = scale["metadata"]["name"].str();
            return Err(Status::invalid(&scale_kind(), name, &violations));
        }
        let mut object = current.clone();
        let owners = self.owners(current, scale.clone());
        let metadata = object.entry("metadata");
        metadata.set("managedFields", owners);
        let unconditional = scale["metadata"]["resourceVersion"].is_empty();
        if !(unconditional && self.call.resource.is_custom()) {
            metadata.set(
                "resourceVersion",
                scale["metadata"]["resourceVersion"].clone(),
            );
        }
        match (&self.update, &scale["metadata"]["uid"]) {
            (ScaleUpdate::Exactly(_), uid) if !uid.is_empty() => metadata.set("uid", uid.clone()),
            (ScaleUpdate::Patched(_), uid) => {
                self.check_patched_uid(uid.str(), &current["metadata"])?
            }
            _ => {}
        }
        let path = &paths(self.call).spec_replicas;
        if replicas == UNSET {
            return Err(Status::bad_request(format!(
                "the spec replicas field {} cannot be empty",
                json::quote(path)
            )));
        }
        let mut place = &mut object;
        for name in plain(path).split('.') {
            place = place.entry(name);
        }
        *place = replicas.into();
        Ok(object)
    }

    /// Kubernetes: a patch has no preconditions; a built-in kind checks the uid itself, a custom one does not.
    fn check_patched_uid(&self, uid: &str, stored: &Value) -> Result<(), Status> {
        let (found, kind) = (stored["uid"].str(), self.call.resource.kind());
        if self.call.resource.is_custom() || uid.is_empty() || uid == found {
            return Ok(());
        }
        let mut resource = kind.resource();
        resource.resource = format!("{}/scale", kind.plural).into();
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        Err(Status::conflict(&resource, stored["name"].str(), &why))
    }

    /// The Scale of the current object, in canonical form.
    fn before(&self, current: &Value) -> Value {
        let mut before = scale_of(self.call, current);
        if self.call.resource.is_custom()
            && current.at(plain(&paths(self.call).spec_replicas)).is_null()
        {
            before.entry("spec").set("replicas", UNSET);
        }
        schema::canonical(&self.call.server.types.scale, &mut before);
        before
    }

    fn patched(&self, form: patch::PatchType, current: &Value) -> Result<Value, Status> {
        let version = ScaleVersion::of(self.call);
        let mut before = self.before(current);
        let owners = self.scale_owners(current, &self.replicas()).to_scale();
        before.entry("metadata").set("managedFields", owners);
        let mut scale = match form {
            patch::PatchType::Apply => self.applied(&before)?,
            _ => {
                let body = &self.call.request.body;
                let mut before = version.to_version(&before);
                schema::canonical(&version.root, &mut before);
                let outcome =
                    patch::apply_patch(&version.root, form, body, &before, self.strictness)?;
                let problem = |stated: &GroupVersionKind| self.kind_problem(stated, &version.gvk);
                let has_hub = !self.call.resource.is_custom();
                let target = patch::PatchTarget {
                    gvk: &version.gvk,
                    root: &version.root,
                    has_hub,
                };
                let read = patch::read(problem, &target, outcome, self.strictness)?;
                self.call.notes.warn_all(read.warnings);
                version.to_current(read.value)
            }
        };
        set_namespace(self.call.path, scale.entry("metadata"))?;
        check_metadata_name(self.call.path, &scale["metadata"])?;
        Ok(scale)
    }

    /// The error for an object of another kind. Kubernetes: Scales of custom resources have a scheme of their own
    /// (client-go/scale/util.go), which cannot convert between versions directly.
    fn kind_problem(&self, stated: &GroupVersionKind, expected: &GroupVersionKind) -> String {
        if !self.call.resource.is_custom() {
            return decode::kind_problem(&self.call.server.catalog, stated, expected);
        }
        let api_version = stated.api_version();
        let known =
            ["apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"].contains(&api_version.as_str());
        if known && stated.kind == "Scale" {
            return format!(
                "converting ({}.Scale) to (v1.Scale): unknown conversion",
                stated.version
            );
        }
        let (kind, version) = (json::quote(&stated.kind), json::quote(&api_version));
        format!(
            "no kind {kind} is registered for version {version} in scheme \"k8s.io/client-go/scale/util.go:146\""
        )
    }

    fn applied(&self, before: &Value) -> Result<Value, Status> {
        let (mut config, complaint) = apply::config(self.call)?;
        // The one field that can be applied is the same in all versions.
        if config["apiVersion"].str() == ScaleVersion::of(self.call).gvk.api_version() {
            config.set("apiVersion", scale_kind().api_version());
        }
        let root = &self.call.server.types.scale;
        let outcome = RequestFieldManager::new(self.call).apply_as(
            &scale_kind(),
            root,
            Some(before),
            &config,
        );
        if self.call.resource.is_custom() {
            self.check_conversion(before, &config, &outcome)?;
        }
        let applied = outcome?;
        apply::check_duplicates(self.call, complaint.as_deref(), self.strictness)?;
        Ok(applied)
    }

    /// Kubernetes: the converter of a custom kind does not know Scales. An apply needs it where the Scale has no managed
    /// fields yet, and where the Scale changes (managedfields/internal).
    fn check_conversion(
        &self,
        before: &Value,
        config: &Value,
        outcome: &Result<Value, Status>,
    ) -> Result<(), Status> {
        let content = |scale: &Value| {
            let mut scale = scale.clone();
            scale.entry("metadata").remove("managedFields");
            schema::canonical(&self.call.server.types.scale, &mut scale);
            scale
        };
        let kind = scale_kind();
        let is_scale =
            config["kind"].str() == kind.kind && config["apiVersion"].str() == kind.api_version();
        let failed = match outcome {
            _ if !is_scale => return Ok(()),
            _ if before["metadata"]["managedFields"].is_empty() => format!(
                "failed to create manager for existing fields: failed to convert live object (/; {kind})"
            ),
            Ok(applied) if content(applied) != content(before) => {
                let metadata = &config["metadata"];
                let (namespace, name) = (metadata["namespace"].str(), metadata["name"].str());
                format!("failed to convert new object ({namespace}/{name}; {kind})")
            }
            _ => return Ok(()),
        };
        Err(Status::unknown(format!(
            "{failed} to proper version: request to convert CR to an invalid group/version: {}",
            kind.api_version()
        )))
    }

    /// The managed fields of the object after its Scale has become `scale`.
    fn owners(&self, current: &Value, mut scale: Value) -> Value {
        let paths = self.replicas();
        let owners = self.scale_owners(current, &paths);
        if !matches!(self.update, ScaleUpdate::Patched(patch::PatchType::Apply)) {
            let root = &self.call.server.types.scale;
            let mut before = self.before(current);
            before
                .entry("metadata")
                .set("managedFields", owners.to_scale());
            scale
                .entry("metadata")
                .set("managedFields", owners.to_scale());
            RequestFieldManager::new(self.call).update_as(&scale_kind(), root, &before, &mut scale);
        }
        owners.to_object(&scale["metadata"]["managedFields"])
    }

    /// The paths of the replicas in the versions of the kind.
    fn replicas(&self) -> Vec<(String, Option<String>)> {
        let path = |kind: &Kind| {
            kind.scale
                .as_ref()
                .map(|paths| plain(&paths.spec_replicas).to_string())
        };
        let versions = self.call.server.catalog.versions(self.call.resource);
        versions
            .iter()
            .map(|version| {
                (
                    version.kind().gvk.api_version().to_string(),
                    path(version.kind()),
                )
            })
            .collect()
    }

    fn scale_owners<'b>(
        &self,
        current: &'b Value,
        paths: &'b [(String, Option<String>)],
    ) -> ScaleHandler<'b> {
        let paths = paths
            .iter()
            .map(|(version, path)| (version.as_str(), path.as_deref()))
            .collect();
        ScaleHandler {
            object: current,
            api_version: current["apiVersion"].str(),
            paths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_both_numbers() {
        let scale = value!({ "metadata": { "name": "web" }, "spec": { "replicas": 2 }, "status": { "replicas": 1 } });
        let expected = ["web".into(), 2.into(), 1.into(), "<unknown>".into()];
        assert_eq!(cells(&scale, 0), expected);
    }
}
