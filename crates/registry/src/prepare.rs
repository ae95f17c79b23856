//! Prepares an object before validation: name, system metadata, generation, status.

use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::{Action, Kind, NameRule};
use mizzen_value::Value;
use mizzen_value::clock::{name_suffix, uuid};

use crate::{Key, Registry, Resource};

/// The maximum length of the prefix of a generated name.
const MAX_GENERATED_BASE: usize = 63 - SUFFIX;
/// The number of random characters of a generated name.
const SUFFIX: usize = 5;

impl Registry {
    /// Names a new object that has no name after its `generateName`, and says whether it did, or as its kind says.
    pub fn generate_name(&self, kind: &Kind, metadata: &mut Value) -> bool {
        let prefix = metadata["generateName"].str();
        if kind.rules.named_by_uuid && prefix.is_empty() && metadata["name"].is_empty() {
            metadata.set("name", uuid(&*self.random));
            return false;
        }
        if prefix.is_empty() || !metadata["name"].is_empty() {
            return false;
        }
        if kind.rules.name == NameRule::Ip {
            let name = Value::from(prefix);
            metadata.set("name", name);
            return true;
        }
        let mut end = prefix.len().min(MAX_GENERATED_BASE);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let name = format!("{}{}", &prefix[..end], name_suffix(&*self.random, SUFFIX));
        metadata.set("name", name);
        true
    }

    /// Sets the system metadata of a new object.
    pub(crate) fn fill_system_metadata(
        &self,
        kind: &Kind,
        key: &Key,
        object: &mut CanonicalObject,
    ) {
        let root = &kind.root;
        object.remove_metadata("resourceVersion");
        object.set_metadata(root, "creationTimestamp", self.timestamp());
        object.set_metadata(root, "uid", uuid(&*self.random));
        if !key.namespace.is_empty() {
            object.set_metadata(root, "namespace", &key.namespace);
        }
    }
}

/// Clears fields that a create must not set.
pub(crate) fn reset_for_create(resource: &Resource, object: &mut CanonicalObject) {
    let (kind, root) = (resource.kind(), &resource.validation_kind().root);
    if kind.has_status() && !kind.rules.status_on_create {
        object.remove_field(root, "status");
    }
    if kind.rules.generation && !kind.rules.late_generation {
        object.set_metadata(root, "generation", 1);
    }
    object.restore(root);
}

/// Restores fields that an update must not change.
pub(crate) fn reset_for_update(
    resource: &Resource,
    action: Action,
    new: &mut CanonicalObject,
    old: &Value,
) {
    let (kind, root) = (resource.kind(), &resource.validation_kind().root);
    match action {
        Action::Status => {
            keep_all_but_status(new, old);
            if kind.rules.loose {
                keep_identity(new, old);
            } else if kind.rules.status_keeps_metadata {
                for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                    keep(new.entry("metadata"), &old["metadata"], field);
                }
            }
        }
        _ if kind.has_status() && new.get("status") != old.get("status") => {
            match old.get("status") {
                Some(status) => new.set_field(root, "status", status.clone()),
                None => new.remove_field(root, "status"),
            }
        }
        _ => {}
    }
    let old = &old["metadata"];
    keep_metadata(root, new, old, "creationTimestamp");
    keep_metadata(root, new, old, "resourceVersion");
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let stored_wins = field == "deletionTimestamp" && !old[field].is_null();
        if stored_wins || new["metadata"][field].is_empty() {
            keep_metadata(root, new, old, field);
        }
    }
    keep_metadata(root, new, old, "generation");
    new.remove_metadata("selfLink");
    new.restore(root);
}

/// Gives a member of the metadata its stored value.
fn keep_metadata(root: &Struct, new: &mut CanonicalObject, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) if new["metadata"][field] == *value => {}
        Some(value) => new.set_metadata(root, field, value.clone()),
        None => new.remove_metadata(field),
    }
}

/// Kubernetes: an update through `/status` of a custom kind changes status and managed fields only
/// (apiextensions-apiserver/pkg/registry/customresource/status_strategy.go).
fn keep_identity(new: &mut Value, old: &Value) {
    let owners = new["metadata"]["managedFields"].clone();
    for field in ["kind", "apiVersion", "metadata"] {
        keep(new, old, field);
    }
    new.entry("metadata").set("managedFields", owners);
}

/// Increments the generation if the spec changed.
pub(crate) fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    let rules = &kind.rules;
    if !rules.generation || rules.constant_generation {
        return;
    }
    let differs = |field: &str| new["metadata"][field] != old["metadata"][field];
    let counted = differs_in_intent(new, old)
        || rules.counts_status && new["status"] != old["status"]
        || rules.counts_annotations && differs("annotations")
        || rules.counts_labels && differs("labels");
    if counted {
        let generation = old["metadata"]["generation"].int() + 1;
        new.entry("metadata").set("generation", generation);
    }
}

fn differs_in_intent(new: &Value, old: &Value) -> bool {
    let intent = |name: &str| !matches!(name, "metadata" | "status" | "kind" | "apiVersion");
    let names = new
        .entries()
        .chain(old.entries())
        .map(|entry| entry.0)
        .filter(|name| intent(name));
    names.into_iter().any(|name| new[name] != old[name])
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new.set(field, value.clone()),
        None => {
            new.remove(field);
        }
    }
}

fn keep_all_but_status(new: &mut Value, old: &Value) {
    let mut object = old.clone();
    object.set("metadata", new["metadata"].clone());
    match new.get("status") {
        Some(status) => object.set("status", status.clone()),
        None => {
            object.remove("status");
        }
    }
    *new = object;
}
