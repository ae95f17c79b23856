//! What does the text of a configuration say? Its fields are known, each of its type, and none is there twice.

use mizzen_object::config_file::{ConfigFileError, Scheme};
use mizzen_value::{Value, time};

use super::schemas;

/// The versions that upstream reads have the same fields.
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

/// The fields of a webhook that are spans of time.
pub(super) const SPANS: [&str; 3] = ["timeout", "authorizedTTL", "unauthorizedTTL"];

/// The configuration of a file, or why it is none. An empty file is one that says nothing.
pub(super) fn decode_document(text: &[u8]) -> Result<Value, ConfigFileError> {
    if text.is_empty() {
        return Ok(Value::object());
    }
    let scheme = Scheme {
        name: "pkg/apis/apiserver/load/load.go:32",
        kinds: &KINDS,
        types: &schemas(),
    };
    let document = scheme.decode(text)?;
    check_spans(&document)?;
    Ok(document)
}

fn check_spans(document: &Value) -> Result<(), ConfigFileError> {
    for entry in document["authorizers"].list() {
        for span in SPANS
            .iter()
            .filter_map(|name| entry["webhook"][*name].as_str())
        {
            time::duration_nanos(span)
                .map_err(|error| ConfigFileError::Invalid(error.to_string()))?;
        }
    }
    Ok(())
}
