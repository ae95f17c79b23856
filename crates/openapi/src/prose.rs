//! Descriptions of types and fields from Kubernetes' documentation, out of the `k8s-openapi` crate.
//!
//! `build.rs` extracts them. They are decompressed while a document is written and dropped afterwards.
//! The crate has no removed API versions; types that these share with v1 use v1's descriptions.

use std::io::Read as _;

use flate2::read::DeflateDecoder;
use mizzen_value::{Value, json};

/// `{definition: {field: description}}`; the field without a name is the type itself.
static DESCRIPTIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// Descriptions by definition.
#[derive(Default)]
pub(super) struct Prose(Value);

impl Prose {
    /// The descriptions of all types.
    pub(super) fn load() -> Prose {
        let mut text = Vec::new();
        DeflateDecoder::new(DESCRIPTIONS)
            .read_to_end(&mut text)
            .expect("build.rs compressed it");
        Prose(json::parse(&text).expect("build.rs wrote it"))
    }

    /// The description of a type.
    pub(super) fn definition(&self, name: &str) -> Option<&str> {
        self.field(name, "")
    }

    pub(super) fn field(&self, definition: &str, field: &str) -> Option<&str> {
        // The crate describes this field at its type.
        if definition == WATCH_EVENT && field == "object" {
            return Some(
                "The object after the change or, if it was deleted, before it; a Status for an error.",
            );
        }
        let fields = self.0.get(&described_definition(definition))?;
        Some(fields.get(field)?.str())
    }
}

const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// The definition under which the crate describes a type.
fn described_definition(definition: &str) -> String {
    let Some((package, name)) = definition.rsplit_once('.') else {
        return definition.into();
    };
    let package = match package {
        "io.k8s.api.extensions.v1beta1" if NETWORKING.iter().any(|part| name.contains(part)) => {
            "io.k8s.api.networking.v1"
        }
        "io.k8s.api.extensions.v1beta1" => "io.k8s.api.apps.v1",
        package => match package.rfind("beta") {
            Some(at) => &package[..at],
            None => package,
        },
    };
    format!("{package}.{name}")
}

/// Parts of the names of types that moved from extensions to networking.k8s.io.
const NETWORKING: [&str; 3] = ["Ingress", "NetworkPolicy", "IPBlock"];
