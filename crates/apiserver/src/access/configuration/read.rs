//! What does the text of a configuration say? Its fields are known, each of its type, and none is there twice.

use mizzen_object::decode::{decode, type_meta};
use mizzen_object::{Value, json, time, yaml};

use super::shape;

const GROUP: &str = "apiserver.config.k8s.io";
const KIND: &str = "AuthorizationConfiguration";
/// The versions that upstream reads; they say the same.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The fields of a webhook that are spans of time.
pub(super) const SPANS: [&str; 3] = ["timeout", "authorizedTTL", "unauthorizedTTL"];

/// The configuration of a file, or why it is none. An empty file is one that says nothing.
pub(super) fn document(text: &[u8]) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::object());
    }
    let document = yaml::read(text).map_err(|error| error.to_string())?;
    let text = document.to_json();
    check_kind(&text)?;
    let root = shape("apiserver.config.k8s.io/v1.AuthorizationConfiguration");
    let decoded = decode(&root, &text).map_err(|error| error.to_string())?;
    let complaints: Vec<String> = document
        .complaint
        .into_iter()
        .chain(decoded.complaints)
        .collect();
    if !complaints.is_empty() {
        return Err(format!("strict decoding error: {}", complaints.join(", ")));
    }
    check_spans(&decoded.value)?;
    Ok(decoded.value)
}

fn check_kind(text: &[u8]) -> Result<(), String> {
    let meta = type_meta(text)
        .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?;
    let shown = || String::from_utf8_lossy(text).into_owned();
    if meta.kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", shown()));
    }
    if meta.api_version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", shown()));
    }
    let version = meta
        .api_version
        .strip_prefix(GROUP)
        .and_then(|rest| rest.strip_prefix('/'));
    if meta.kind == KIND && version.is_some_and(|version| VERSIONS.contains(&version)) {
        return Ok(());
    }
    let (kind, version) = (json::quote(&meta.kind), json::quote(&meta.api_version));
    Err(format!(
        "no kind {kind} is registered for version {version} in scheme \"pkg/apis/apiserver/load/load.go:32\""
    ))
}

fn check_spans(document: &Value) -> Result<(), String> {
    for entry in document["authorizers"].list() {
        for span in SPANS
            .iter()
            .filter_map(|name| entry["webhook"][*name].as_str())
        {
            time::duration_nanos(span).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}
