//! Schemas of types, for both OpenAPI versions.
//!
//! Only referenced definitions are written: [`DefinitionSet::reachable`] follows references from
//! the operations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mizzen_object::schema::{
    FieldShape, FieldType, Merge, PatchStrategy, Presence, Struct, StructField,
};
use mizzen_object::{GroupVersionKind, Kind};
use mizzen_value::{Map, Str, Value, value};

use super::names::{self, META};
use super::prose::Prose;
use super::{Published, SpecContext, custom, enums, opaque, registered};

/// The OpenAPI version of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecVersion {
    /// Swagger 2.0: no defaults, no `anyOf` or `oneOf`, references may have siblings.
    V2,
    /// OpenAPI 3.0: a reference has no siblings.
    V3,
}

impl SpecVersion {
    /// The prefix of references to definitions.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            SpecVersion::V2 => "#/definitions/",
            SpecVersion::V3 => "#/components/schemas/",
        }
    }

    pub(super) fn reference(self, definition: &str) -> Value {
        value!({"$ref": (format!("{}{definition}", self.prefix()))})
    }

    /// A schema with the description and attributes of its field.
    pub(super) fn with_attributes(
        self,
        schema: Value,
        description: Option<&str>,
        additions: Map,
    ) -> Value {
        let mut dressed = Map::default();
        if let Some(description) = description {
            dressed.insert("description", description);
        }
        let alone = dressed.is_empty() && additions.is_empty();
        if self == SpecVersion::V3 && !alone && schema.get("$ref").is_some() {
            dressed.insert("allOf", vec![schema]);
        } else if let Value::Map(schema) = schema {
            schema
                .into_iter()
                .for_each(|(key, value)| drop(dressed.insert(key, value)));
        }
        additions
            .into_iter()
            .for_each(|(key, value)| drop(dressed.insert(key, value)));
        in_order(&mut dressed);
        Value::Map(dressed)
    }
}

/// The members of a schema in upstream's order (kube-openapi/pkg/validation/spec/schema.go);
/// extensions come last.
const MEMBERS: &[&str] = &[
    "description",
    "type",
    "nullable",
    "format",
    "title",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "items",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "properties",
    "additionalProperties",
    "$ref",
    "externalDocs",
    "example",
];

/// Sorts the members of a schema.
pub(super) fn in_order(schema: &mut Map) {
    let rank = |name: &str| {
        MEMBERS
            .iter()
            .position(|known| *known == name)
            .unwrap_or(MEMBERS.len())
    };
    let mut members: Vec<(Str, Value)> = std::mem::take(schema).into_iter().collect();
    members
        .sort_by(|(one, _), (other, _)| rank(one).cmp(&rank(other)).then_with(|| one.cmp(other)));
    *schema = members.into_iter().collect();
}

/// All definitions that can be referenced.
pub(super) struct DefinitionSet<'a> {
    dialect: SpecVersion,
    named: &'a Named,
    known: HashMap<String, OwnDefinition<'a>>,
    /// The group versions of the document's built-in kinds.
    versions: Vec<(Str, Str)>,
    prose: Prose,
}

/// The built-in types by definition name.
pub(super) type Named = HashMap<String, NamedType>;

pub(super) struct NamedType {
    ty: Arc<Struct>,
    /// A kind has `kind` and `apiVersion` besides its fields.
    is_kind: bool,
}

/// Collects the built-in types by definition name.
fn name(context: &SpecContext) -> Named {
    let name = |(full_name, ty): (&Str, &Arc<Struct>)| {
        let is_kind = context.kinds.contains(full_name) || {
            // Kubernetes: `kind` and `apiVersion` without a number are left to the envelope.
            let mut names = ["kind", "apiVersion"].iter();
            names.all(|name| ty.field(name).is_some_and(|field| field.tag == 0))
        };
        (
            names::definition(ty),
            NamedType {
                ty: ty.clone(),
                is_kind,
            },
        )
    };
    context.types.types.iter().map(name).collect()
}

/// A definition that the document's kinds add.
enum OwnDefinition<'a> {
    /// A list of a kind.
    List(&'a Published),
    /// A custom kind.
    Custom(&'a Published),
}

impl<'a> DefinitionSet<'a> {
    /// The definitions of all types and of the document's kinds.
    pub(super) fn new(
        dialect: SpecVersion,
        context: &'a SpecContext,
        kinds: impl IntoIterator<Item = &'a Published>,
        prose: Prose,
    ) -> DefinitionSet<'a> {
        let named = context.named.get_or_init(|| name(context));
        let mut definitions = DefinitionSet {
            dialect,
            named,
            known: HashMap::new(),
            versions: Vec::new(),
            prose,
        };
        kinds
            .into_iter()
            .for_each(|published| definitions.add(published));
        definitions
    }

    fn add(&mut self, published: &'a Published) {
        let kind = &published.kind;
        let name = definition_of(published);
        let version = (kind.gvk.group.clone(), kind.gvk.version.clone());
        if published.schema.is_none() && !self.versions.contains(&version) {
            self.versions.push(version);
        }
        if let Some(list_kind) = &kind.list_kind {
            self.known
                .insert(sibling(&name, list_kind), OwnDefinition::List(published));
        }
        if published.schema.is_some() {
            self.known.insert(name, OwnDefinition::Custom(published));
        }
    }

    /// The definitions that are reachable from `roots`, each passed through `encode`.
    pub(super) fn reachable(
        &self,
        roots: impl IntoIterator<Item = String>,
        encode: impl Fn(&Value) -> Vec<u8>,
    ) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut waiting: Vec<String> = roots.into_iter().collect();
        while let Some(name) = waiting.pop() {
            if found.contains_key(&name) {
                continue;
            }
            if let Some(schema) = self.schema(&name) {
                references(&schema, self.dialect.prefix(), &mut waiting);
                found.insert(name, encode(&schema));
            }
        }
        found
    }

    fn schema(&self, name: &str) -> Option<Value> {
        if let Some(named) = self.named.get(name) {
            return Some(self.of_struct(name, &named.ty, named.is_kind));
        }
        Some(match self.known.get(name) {
            Some(OwnDefinition::List(published)) if published.schema.is_some() => {
                custom::list(self.dialect, name, &published.kind, &self.prose)
            }
            Some(OwnDefinition::List(published)) => self.of_list(name, &published.kind),
            Some(OwnDefinition::Custom(published)) => {
                custom::definition(self.dialect, published, &self.prose)
            }
            None => {
                let description = self.prose.definition(name);
                SpecVersion::V2.with_attributes(
                    opaque::schema(self.dialect, name)?,
                    description,
                    Map::default(),
                )
            }
        })
    }

    fn of_struct(&self, name: &str, ty: &Struct, is_kind: bool) -> Value {
        let mut properties: BTreeMap<&str, Value> = ty
            .fields()
            .iter()
            .map(|field| (field.name.as_str(), self.of_field(name, field)))
            .collect();
        if is_kind {
            for field in ["apiVersion", "kind"] {
                properties.insert(field, described("string", self.prose.field(name, field)));
            }
        }
        let required: Vec<Value> = ty
            .fields()
            .iter()
            .filter(|field| field.required)
            .map(|field| Value::from(&field.name))
            .collect();

        let mut schema = value!({"type": "object"});
        if !required.is_empty() {
            schema.set("required", required);
        }
        if !properties.is_empty() {
            schema.set("properties", Map::from_iter(properties));
        }
        let kinds = self.kinds_of(ty, is_kind);
        if !kinds.is_empty() {
            schema.set("x-kubernetes-group-version-kind", kinds);
        }
        if ty.atomic {
            schema.set("x-kubernetes-map-type", "atomic");
        }
        if let Some(union) = ty.union() {
            let members = union.members.iter();
            let members = members.map(|name| (name.clone(), Value::from(names::capital(name))));
            let mut described = Value::object();
            if let Some(discriminator) = &union.discriminator {
                described.set("discriminator", discriminator.clone());
            }
            described.set("fields-to-discriminateBy", members.collect::<Map>());
            schema.set("x-kubernetes-unions", vec![described]);
        }
        self.dialect
            .with_attributes(schema, self.prose.definition(name), Map::default())
    }

    /// The `x-kubernetes-group-version-kind` values of a type.
    ///
    /// Kubernetes: two types of meta are registered in every group version
    /// (metav1.AddToGroupVersion). A document of one built-in group version lists that one; every
    /// other document lists all of its scheme.
    fn kinds_of(&self, ty: &Struct, is_kind: bool) -> Vec<Value> {
        let everywhere =
            ty.home == "meta/v1" && matches!(ty.name.as_str(), "DeleteOptions" | "WatchEvent");
        let (group, version) = names::group_version(&ty.home);
        let mut homes: BTreeSet<(&str, &str)> = BTreeSet::new();
        if is_kind || everywhere {
            homes.insert((&group, &version));
        }
        if everywhere {
            homes.extend(
                self.versions
                    .iter()
                    .map(|(group, version)| (group.as_str(), version.as_str())),
            );
            match self.dialect {
                SpecVersion::V2 => homes.extend(registered::server()),
                SpecVersion::V3 if self.versions.is_empty() => homes.extend(registered::client()),
                SpecVersion::V3 => {}
            }
        }
        homes
            .into_iter()
            .map(|(group, version)| kind_value(group, version, &ty.name))
            .collect()
    }

    fn of_field(&self, owner: &str, field: &StructField) -> Value {
        let mut additions = Map::default();
        if let Some(default) = self.default_of(field) {
            additions.insert("default", default);
        }
        merge(&field.merge, &field.ty, &mut additions);
        patch(&field.patch, &mut additions);
        let words = self.prose.field(owner, &field.name).map(|words| {
            // Kubernetes: the values of an enum are repeated in the description.
            let values = match field.ty.shape {
                FieldShape::String => enums::values(&field.ty.go),
                _ => &[],
            };
            let list = values.iter().map(|value| format!("\n - `{value:?}`"));
            match values.is_empty() {
                true => words.to_string(),
                false => format!(
                    "{words}\n\nPossible enum values:{}",
                    list.collect::<String>()
                ),
            }
        });
        self.dialect
            .with_attributes(self.of_type(&field.ty), words.as_deref(), additions)
    }

    /// A struct that is not a pointer is present even if it is not set.
    fn default_of(&self, field: &StructField) -> Option<Value> {
        if self.dialect == SpecVersion::V2 {
            return None;
        }
        let plain = matches!(field.presence, Presence::NotEmpty | Presence::Always);
        let implied = || (plain && field.ty.as_struct().is_some()).then(Value::object);
        field.default.clone().or_else(implied)
    }

    fn of_type(&self, ty: &FieldType) -> Value {
        match &ty.shape {
            FieldShape::Bool => value!({"type": "boolean"}),
            FieldShape::Int32 => value!({"type": "integer", "format": "int32"}),
            FieldShape::Int64 => value!({"type": "integer", "format": "int64"}),
            FieldShape::Float => value!({"type": "number", "format": "double"}),
            FieldShape::String => match enums::values(&ty.go) {
                [] => value!({"type": "string"}),
                values => {
                    let values = values.iter().map(|value| Value::from(*value));
                    value!({"type": "string", "enum": (values.collect::<Vec<_>>())})
                }
            },
            FieldShape::Bytes => value!({"type": "string", "format": "byte"}),
            FieldShape::List(item) => value!({"type": "array", "items": (self.of_item(item))}),
            FieldShape::Map(item) => {
                value!({"type": "object", "additionalProperties": (self.of_item(item))})
            }
            FieldShape::Struct(inner) => self.dialect.reference(&names::definition(inner)),
            _ => self.dialect.reference(&opaque::name(ty)),
        }
    }

    fn of_item(&self, ty: &FieldType) -> Value {
        let mut additions = Map::default();
        let plain = matches!(
            ty.shape,
            FieldShape::Bool
                | FieldShape::Int32
                | FieldShape::Int64
                | FieldShape::Float
                | FieldShape::String
                | FieldShape::Struct(_)
        );
        if plain && self.dialect == SpecVersion::V3 {
            additions.insert("default", ty.zero());
        }
        self.dialect
            .with_attributes(self.of_type(ty), None, additions)
    }

    fn of_list(&self, name: &str, kind: &Kind) -> Value {
        let item = sibling(name, &kind.gvk.kind);
        let words = |field| self.prose.field(&item, field);
        let metadata = self.of_plain(&format!("{META}.ListMeta"), Some("Standard list metadata."));
        let items = value!({
            "description": (format!("List of {}.", kind.plural)),
            "type": "array",
            "items": (self.of_plain(&item, None)),
        });
        let list_kind = name.rsplit('.').next().unwrap_or_default();
        let mut list = value!({
            "description": (format!("{list_kind} is a list of {}.", kind.gvk.kind)),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": (described("string", words("apiVersion"))),
                "items": items,
                "kind": (described("string", words("kind"))),
                "metadata": metadata,
            },
        });
        list.set(
            "x-kubernetes-group-version-kind",
            vec![kind_value(&kind.gvk.group, &kind.gvk.version, list_kind)],
        );
        list
    }

    /// The schema of a struct that is not a pointer.
    fn of_plain(&self, definition: &str, description: Option<&str>) -> Value {
        let mut additions = Map::default();
        if self.dialect == SpecVersion::V3 {
            additions.insert("default", Value::object());
        }
        self.dialect
            .with_attributes(self.dialect.reference(definition), description, additions)
    }
}

/// The definition name of a kind.
pub(super) fn definition_of(published: &Published) -> String {
    match published.schema {
        Some(_) => names::custom_definition(&published.kind.gvk),
        None => names::definition(&published.kind.root),
    }
}

/// A definition name in the package of another.
pub(super) fn sibling(definition: &str, name: &str) -> String {
    let package = definition
        .rsplit_once('.')
        .map_or("", |(package, _)| package);
    format!("{package}.{name}")
}

/// A kind in extensions.
pub(super) fn kind_value(group: &str, version: &str, kind: &str) -> Value {
    value!({"group": group, "kind": kind, "version": version})
}

/// The kind of a v3 operation. Kubernetes: it is a struct in Go, where [`kind_value`] is a map,
/// hence the other order.
pub(super) fn gvk_value(gvk: &GroupVersionKind) -> Value {
    value!({"group": (gvk.group.clone()), "version": (gvk.version.clone()), "kind": (gvk.kind.clone())})
}

/// Collects the definitions that a value refers to.
pub(super) fn references(value: &Value, prefix: &str, found: &mut impl Extend<String>) {
    match value {
        Value::List(list) => list.iter().for_each(|item| references(item, prefix, found)),
        Value::Map(map) => {
            for (key, member) in map.iter() {
                match member
                    .as_str()
                    .filter(|_| key == "$ref")
                    .and_then(|text| text.strip_prefix(prefix))
                {
                    Some(definition) => found.extend([definition.to_string()]),
                    None => references(member, prefix, found),
                }
            }
        }
        _ => {}
    }
}

pub(super) fn described(ty: &str, description: Option<&str>) -> Value {
    SpecVersion::V2.with_attributes(value!({"type": ty}), description, Map::default())
}

fn merge(merge: &Merge, ty: &FieldType, additions: &mut Map) {
    let is_list = matches!(ty.shape, FieldShape::List(_) | FieldShape::Bytes);
    let of = if is_list {
        "x-kubernetes-list-type"
    } else {
        "x-kubernetes-map-type"
    };
    match merge {
        Merge::Unsaid => return,
        Merge::Atomic => additions.insert(of, "atomic"),
        Merge::Granular => additions.insert(of, "granular"),
        Merge::Set => additions.insert(of, "set"),
        Merge::Keyed(keys) => {
            additions.insert(
                "x-kubernetes-list-map-keys",
                keys.iter().map(Value::from).collect::<Vec<_>>(),
            );
            additions.insert(of, "map")
        }
    };
}

fn patch(patch: &PatchStrategy, additions: &mut Map) {
    if let Some(key) = &patch.key {
        additions.insert("x-kubernetes-patch-merge-key", key.clone());
    }
    let strategy = match (patch.merge, patch.retain_keys) {
        (true, true) => "merge,retainKeys",
        (true, false) => "merge",
        (false, true) => "retainKeys",
        (false, false) if patch.replace => "replace",
        (false, false) => return,
    };
    additions.insert("x-kubernetes-patch-strategy", strategy);
}
