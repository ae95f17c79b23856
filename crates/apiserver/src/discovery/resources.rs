//! A kind as the lines it has in an `APIResourceList`: one for itself, one for each subresource.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mizzen_object::{GroupVersionKind, Kind, Subresource};
use mizzen_value::{Str, Value, value};
use sha2::{Digest, Sha256};

/// The lines of `kind`.
pub(crate) fn of(kind: &Kind) -> impl Iterator<Item = Value> {
    std::iter::once(resource(kind)).chain(
        kind.subresources
            .iter()
            .map(|below| subresource(kind, below)),
    )
}

/// By what clients tell that the stored form of a kind has changed.
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
    if is_stored(kind) {
        resource.set("storageVersionHash", storage_version_hash(&stored(kind)));
    }
    resource
}

/// The version that clients are told a kind is stored in.
fn stored(kind: &Kind) -> GroupVersionKind {
    let stored = kind.stored.as_ref().unwrap_or(&kind.gvk).clone();
    // Kubernetes: these are stored in a version that is not served any more (apiextensions' scheme), or that an older
    // server can read (pkg/kubeapiserver/default_storage_factory_builder.go).
    let older = matches!(
        (stored.group.as_str(), stored.kind.as_str()),
        ("apiextensions.k8s.io", "CustomResourceDefinition")
            | (
                "admissionregistration.k8s.io",
                "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding"
            )
    );
    if older {
        GroupVersionKind {
            version: "v1beta1".into(),
            ..stored
        }
    } else {
        stored
    }
}

/// Whatever is kept can be watched; reviews and computed objects cannot.
fn is_stored(kind: &Kind) -> bool {
    kind.verbs.iter().any(|verb| verb == "watch")
}

fn subresource(kind: &Kind, subresource: &Subresource) -> Value {
    let mut line = value!({
        "name": (format!("{}/{}", kind.plural, subresource.name)),
        "singularName": "",
        "namespaced": (kind.is_namespaced()),
    });
    let speaks = subresource.kind.as_ref().unwrap_or(&kind.gvk);
    if (&speaks.group, &speaks.version) != (&kind.gvk.group, &kind.gvk.version) {
        line.set("group", speaks.group.clone());
        line.set("version", speaks.version.clone());
    }
    line.set("kind", speaks.kind.clone());
    line.set("verbs", list(&subresource.verbs));
    line
}

fn list(words: &[Str]) -> Vec<Value> {
    words.iter().map(Value::from).collect()
}
