//! Which chains of names are paths in a built-in kind?

use std::collections::HashMap;

use mizzen_object::schema::{Alternative, FieldShape, FieldType, Struct};

use super::chains::{Chain, Step};

/// What a receiver is by its name: these types, of any version.
const RECEIVERS: [(&str, &[&str]); 10] = [
    ("budget", &["PodDisruptionBudget"]),
    (
        "container",
        &["Container", "EphemeralContainer", "ContainerStatus"],
    ),
    ("deployment", &["Deployment"]),
    ("job", &["Job", "JobSpec", "ObjectReference"]),
    ("node", &["Node", "CSINode"]),
    ("pod", &["Pod", "PodTemplateSpec", "PodSpec"]),
    ("quota", &["ResourceQuota"]),
    ("slice", &["EndpointSlice", "ResourceSlice"]),
    ("taint", &["Taint", "DeviceTaint"]),
    ("toleration", &["Toleration", "DeviceToleration"]),
];

/// The types of all kinds.
pub(crate) struct Schema {
    types: HashMap<&'static str, Vec<Place>>,
    fields: HashMap<&'static str, Vec<Place>>,
}

/// What may stand somewhere.
#[derive(Clone, Copy)]
enum Place {
    Type(&'static FieldType),
    Struct(&'static Struct),
    /// `apiVersion` and `kind`.
    Text,
}

impl Schema {
    pub(crate) fn new() -> Schema {
        let catalog = Box::leak(Box::new(mizzen_kinds::storage_catalog()));
        let mut schema = Schema {
            types: HashMap::new(),
            fields: HashMap::from([
                ("apiVersion", vec![Place::Text]),
                ("kind", vec![Place::Text]),
            ]),
        };
        for ty in catalog.schemas.types.values() {
            let known = schema.types.entry(&ty.name).or_default();
            known.push(Place::Struct(ty));
            for field in ty.fields() {
                let known = schema.fields.entry(&field.name).or_default();
                known.push(Place::Type(&field.ty));
            }
        }
        schema
    }

    /// Whether a chain is a path that begins at some type, and at one of its receiver if that is known. Nothing is known
    /// of keys with a domain, such as annotations, nor of directives of patches.
    pub(crate) fn has(&self, chain: &Chain) -> bool {
        let is_free = |step: &Step| matches!(step, Step::Name(name) if name.contains('/') || name.starts_with('$'));
        let names: Vec<&Step> = chain
            .steps
            .iter()
            .take_while(|step| !is_free(step))
            .collect();
        let Some((first, rest)) = names.split_first() else {
            return true;
        };
        let receiver = RECEIVERS.iter().find(|(name, _)| *name == chain.receiver);
        let mut places: Vec<Place> = match (receiver, first) {
            (Some((_, types)), first) => {
                let roots = types.iter().flat_map(|name| &self.types[name]);
                roots.flat_map(|place| place.follow(first)).collect()
            }
            (None, Step::Name(name)) => self.fields.get(name.as_str()).cloned().unwrap_or_default(),
            (None, Step::Item | Step::Any) => self.fields.values().flatten().copied().collect(),
        };
        for step in rest {
            places = places.iter().flat_map(|place| place.follow(step)).collect();
        }
        !places.is_empty()
    }
}

impl Place {
    fn follow(self, step: &Step) -> Vec<Place> {
        let ty = match self {
            Place::Type(ty) => ty,
            Place::Struct(fields) => return member(fields, step),
            Place::Text => return Vec::new(),
        };
        match (&ty.shape, step) {
            (FieldShape::Raw | FieldShape::Json, _) => vec![self],
            (FieldShape::Map(item), Step::Name(_) | Step::Any)
            | (FieldShape::List(item), Step::Item | Step::Any) => vec![Place::Type(item)],
            (FieldShape::Or(Alternative::List | Alternative::Strings, _), Step::Item) => vec![self],
            (FieldShape::Struct(fields) | FieldShape::Or(_, fields), step) => member(fields, step),
            _ => Vec::new(),
        }
    }
}

fn member(fields: &'static Struct, step: &Step) -> Vec<Place> {
    let place = |name: &str| fields.field(name).map(|field| Place::Type(&field.ty));
    match step {
        Step::Name(name) if fields.is_kind() && matches!(name.as_str(), "apiVersion" | "kind") => {
            vec![Place::Text]
        }
        Step::Name(name) => place(name).into_iter().collect(),
        Step::Any => fields
            .fields()
            .iter()
            .map(|field| Place::Type(&field.ty))
            .collect(),
        Step::Item => Vec::new(),
    }
}
