//! Decodes an AuthorizationConfiguration strictly.

use mizzen_object::config_file::{ConfigFileError, ConfigScheme};
use mizzen_value::{Value, time};

use super::schemas;

/// All versions have the same fields.
const KINDS: [(&str, &str); 3] = [
    ("apiserver.config.k8s.io/v1", "AuthorizationConfiguration"),
    (
        "apiserver.config.k8s.io/v1beta1",
        "AuthorizationConfiguration",
    ),
    (
        "apiserver.config.k8s.io/v1alpha1",
        "AuthorizationConfiguration",
    ),
];

/// The duration fields of a webhook.
pub(super) const SPANS: [&str; 3] = ["timeout", "authorizedTTL", "unauthorizedTTL"];

/// The decoded file. An empty file is an empty configuration.
pub(super) fn decode_document(text: &[u8]) -> Result<Value, ConfigFileError> {
    if text.is_empty() {
        return Ok(Value::object());
    }
    let scheme = ConfigScheme {
        name: "pkg/apis/apiserver/load/load.go:32",
        kinds: &KINDS,
        types: &schemas(),
    };
    let document = scheme.decode(text)?;
    for entry in document["authorizers"].list() {
        for span in SPANS
            .iter()
            .filter_map(|name| entry["webhook"][*name].as_str())
        {
            time::duration_nanos(span)
                .map_err(|error| ConfigFileError::Invalid(error.to_string()))?;
        }
    }
    Ok(document)
}
