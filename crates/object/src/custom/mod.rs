//! Custom resources: a CustomResourceDefinition becomes one [`Kind`] per version.
//!
//! A custom kind is served like a built-in one. Its root is a [`Struct`] with one field, the
//! metadata, and a compiled structural schema for the rest ([`Struct::rest`]), which decoding,
//! defaulting, canonical form and managed fields use. The remaining differences are in its hooks.

mod hooks;
mod priority;

pub use priority::compare_versions;

use std::sync::Arc;

use crate::kind::{
    Column, Kind, KindData, KindRules, NameRule, ResourceScope, ScalePaths, Subresource,
};
use crate::names::GroupVersionKind;
use crate::schema::{FieldShape, FieldType, Merge, PatchStrategy, Presence, Struct, StructField};
use crate::structural::Structural;
use hooks::Custom;
use mizzen_value::{Str, Value};

/// The kinds of an established definition, one per version, served or not, in order.
///
/// Names are the accepted ones, or the requested ones while none are accepted. `object_meta` is the
/// schema of metadata, the same as for built-in kinds.
pub fn kinds(definition: &Value, object_meta: &Arc<Struct>) -> Vec<Kind> {
    let spec = &definition["spec"];
    let versions = spec["versions"].list();
    let schemas: Vec<Arc<Structural>> = versions
        .iter()
        .map(|version| Arc::new(schema(spec, version)))
        .collect();
    let Some(at) = versions
        .iter()
        .position(|version| version["storage"].bool())
    else {
        return Vec::new();
    };
    let make = |(version, schema): (&Value, &Arc<Structural>)| Kind {
        data: Arc::new(data(definition, version, schema.clone(), object_meta)),
        hooks: Arc::new(Custom {
            gvk: gvk(definition, version),
            stored: gvk(definition, &versions[at]),
            schema: schema.clone(),
            stored_schema: schemas[at].clone(),
            scale: scale(version),
        }),
    };
    versions.iter().zip(&schemas).map(make).collect()
}

fn schema(spec: &Value, version: &Value) -> Structural {
    Structural::compile(
        &version["schema"]["openAPIV3Schema"],
        spec["preserveUnknownFields"].bool(),
    )
}

fn names(definition: &Value) -> &Value {
    let accepted = &definition["status"]["acceptedNames"];
    if accepted["kind"].is_empty() {
        &definition["spec"]["names"]
    } else {
        accepted
    }
}

fn gvk(definition: &Value, version: &Value) -> GroupVersionKind {
    GroupVersionKind {
        group: definition["spec"]["group"].str().into(),
        version: version["name"].str().into(),
        kind: names(definition)["kind"].str().into(),
    }
}

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

fn data(
    definition: &Value,
    version: &Value,
    schema: Arc<Structural>,
    object_meta: &Arc<Struct>,
) -> KindData {
    let (spec, names, own) = (
        &definition["spec"],
        names(definition),
        gvk(definition, version),
    );
    let storage = spec["versions"]
        .list()
        .iter()
        .find(|version| version["storage"].bool());
    let stored = storage
        .map(|storage| gvk(definition, storage))
        .filter(|stored| *stored != own);
    let has_status = version["subresources"].get("status").is_some();
    let texts = |list: &Value| list.list().iter().map(|text| text.str().into()).collect();
    KindData {
        list_kind: Some(names["listKind"].str().into()),
        plural: names["plural"].str().into(),
        singular: names["singular"].str().into(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        scope: if spec["scope"].str() == "Cluster" {
            ResourceScope::Cluster
        } else {
            ResourceScope::Namespaced
        },
        verbs: VERBS.map(Str::new_static).to_vec(),
        subresources: subresources(version),
        selectable: selectable(version),
        warning: version["deprecated"]
            .bool()
            .then(|| warning(definition, version)),
        scale: scale(version),
        stored,
        columns: columns(version),
        rules: KindRules {
            generation: true,
            counts_status: !has_status,
            conditional_update: true,
            status_keeps_metadata: true,
            plain_metadata: true,
            loose: true,
            name: NameRule::Subdomain,
            ..KindRules::default()
        },
        ..KindData::new(own.clone(), root(&own, schema, object_meta))
    }
}

/// A struct with typed metadata and a structural schema for the rest.
fn root(gvk: &GroupVersionKind, schema: Arc<Structural>, object_meta: &Arc<Struct>) -> Arc<Struct> {
    let root = Struct::new(gvk.kind.clone(), gvk.api_version(), false);
    let metadata = StructField {
        name: "metadata".into(),
        ty: FieldType {
            shape: FieldShape::Struct(object_meta.clone()),
            go: "v1.ObjectMeta".into(),
        },
        tag: 0,
        presence: Presence::Set,
        required: false,
        default: None,
        merge: Merge::default(),
        patch: PatchStrategy::default(),
        embedded: None,
    };
    root.define(vec![metadata], Vec::new());
    root.define_rest(schema);
    root.name_kind();
    Arc::new(root)
}

fn subresources(version: &Value) -> Vec<Subresource> {
    let declared = &version["subresources"];
    let make = |name: &'static str, kind: Option<GroupVersionKind>| Subresource {
        name: Str::new_static(name),
        verbs: ["get", "patch", "update"].map(Str::new_static).to_vec(),
        kind,
        resets: None,
    };
    let scale = GroupVersionKind {
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
    };
    let status = declared.get("status").map(|_| make("status", None));
    let scale = declared.get("scale").map(|_| make("scale", Some(scale)));
    status.into_iter().chain(scale).collect()
}

fn scale(version: &Value) -> Option<ScalePaths> {
    let scale = version["subresources"].get("scale")?;
    Some(ScalePaths {
        spec_replicas: scale["specReplicasPath"].str().into(),
        status_replicas: scale["statusReplicasPath"].str().into(),
        label_selector: scale["labelSelectorPath"].str().into(),
    })
}

/// The selectable fields: their paths without the leading dot.
fn selectable(version: &Value) -> Vec<Str> {
    let fields = version["selectableFields"].list().iter();
    fields
        .map(|field| field["jsonPath"].str().trim_start_matches('.').into())
        .collect()
}

fn columns(version: &Value) -> Vec<Column> {
    let name = Column {
        name: "Name".into(),
        ty: "string".into(),
        format: "name".into(),
        priority: 0,
        path: Some(".metadata.name".into()),
        description: Str::new_static(NAME),
    };
    let declared = version["additionalPrinterColumns"].list();
    let age = Column {
        name: "Age".into(),
        ty: "date".into(),
        format: Str::default(),
        priority: 0,
        path: Some(".metadata.creationTimestamp".into()),
        description: Str::new_static(AGE),
    };
    let rest: Vec<Column> = if declared.is_empty() {
        vec![age]
    } else {
        declared.iter().map(column).collect()
    };
    std::iter::once(name).chain(rest).collect()
}

fn column(column: &Value) -> Column {
    let path = column["jsonPath"].str();
    let description = match column["description"].str() {
        "" => format!("Custom resource definition column (in JSONPath format): {path}").into(),
        words => words.into(),
    };
    Column {
        name: column["name"].str().into(),
        ty: column["type"].str().into(),
        format: column["format"].str().into(),
        priority: i32::try_from(column["priority"].int()).unwrap_or_default(),
        path: Some(path.into()),
        description,
    }
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The deprecation warning of a version: the author's, or a generated one.
fn warning(definition: &Value, version: &Value) -> Str {
    if let Some(words) = version["deprecationWarning"].as_str() {
        return words.into();
    }
    let (old, spec) = (version["name"].str(), &definition["spec"]);
    let (group, kind) = (spec["group"].str(), spec["names"]["kind"].str());
    let current = |version: &&Value| version["served"].bool() && !version["deprecated"].bool();
    let names = spec["versions"]
        .list()
        .iter()
        .filter(current)
        .map(|version| version["name"].str());
    let better = names.filter(|name| compare_versions(name, old).is_gt());
    match better.max_by(|left, right| compare_versions(left, right)) {
        Some(name) => {
            format!("{group}/{old} {kind} is deprecated; use {group}/{name} {kind}").into()
        }
        None => format!("{group}/{old} {kind} is deprecated").into(),
    }
}
