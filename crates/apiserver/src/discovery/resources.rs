//! The items of a kind in an `APIResourceList`: one for itself, one for each subresource.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::{GroupVersionKind, Kind, Subresource};
use mizzen_value::{Str, Value, value};
use sha2::{Digest, Sha256};

/// The items of `kind`.
pub(crate) fn api_resources(kind: &Kind) -> impl Iterator<Item = Value> {
    std::iter::once(resource(kind)).chain(
        kind.subresources
            .iter()
            .map(|below| subresource(kind, below)),
    )
}

/// The `storageVersionHash`, by which clients see that the storage version of a kind has changed.
pub fn storage_version_hash(stored: &GroupVersionKind) -> String {
    let hash = Sha256::digest(format!(
        "{}/{}/{}",
        stored.group, stored.version, stored.kind
    ));
    STANDARD.encode(&hash[..8])
}

fn resource(kind: &Kind) -> Value {
    let mut resource = value!({
        "name": (kind.plural.clone()),
        "singularName": (kind.singular.clone()),
        "namespaced": (kind.is_namespaced()),
        "kind": (kind.gvk.kind.clone()),
        "verbs": (list(&kind.verbs)),
    });
    if !kind.short_names.is_empty() {
        resource.set("shortNames", list(&kind.short_names));
    }
    if !kind.categories.is_empty() {
        resource.set("categories", list(&kind.categories));
    }
    // A stored kind can be watched; reviews and computed objects cannot.
    if kind.verbs.iter().any(|verb| verb == "watch") {
        resource.set("storageVersionHash", storage_version_hash(&stored(kind)));
    }
    resource
}

/// The storage version of a kind, as discovery reports it.
fn stored(kind: &Kind) -> GroupVersionKind {
    let stored = kind.stored.as_ref().unwrap_or(&kind.gvk).clone();
    match kind.storage_encoding.clone() {
        Some(version) => GroupVersionKind { version, ..stored },
        None => stored,
    }
}

fn subresource(kind: &Kind, subresource: &Subresource) -> Value {
    let mut line = value!({
        "name": (format!("{}/{}", kind.plural, subresource.name)),
        "singularName": "",
        "namespaced": (kind.is_namespaced()),
    });
    let served = subresource.kind.as_ref().unwrap_or(&kind.gvk);
    if (&served.group, &served.version) != (&kind.gvk.group, &kind.gvk.version) {
        line.set("group", served.group.clone());
        line.set("version", served.version.clone());
    }
    line.set("kind", served.kind.clone());
    line.set("verbs", list(&subresource.verbs));
    line
}

fn list(words: &[Str]) -> Vec<Value> {
    words.iter().map(Value::from).collect()
}
