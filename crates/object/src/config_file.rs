//! The strict decoder of components' configuration files, with the errors of Kubernetes' codecs.
//!
//! A [`ConfigScheme`] has the kinds that a file may have. Text that starts with `{` is JSON, other text
//! is YAML 1.1. Unknown and duplicate fields are errors.
//!
//! Kubernetes: a codec factory with `EnableStrict` (apimachinery/pkg/runtime/serializer,
//! json/json.go).
//!
//! ```
//! use mizzen_object::config_file::ConfigScheme;
//! use mizzen_object::schema;
//!
//! let types = "group example.com\nversion v1\n\ntype Limits\n  - kind string\n  - apiVersion string\n  - qps int32\n";
//! let scheme = ConfigScheme {
//!     name: "example.go:1",
//!     kinds: &[("example.com/v1", "Limits")],
//!     types: &schema::parse([("limits.types", types)]).unwrap(),
//! };
//! let limits = scheme.decode(b"apiVersion: example.com/v1\nkind: Limits\nqps: 5").unwrap();
//! assert_eq!(limits["qps"].int(), 5);
//! let error = scheme.decode(b"apiVersion: example.com/v1\nkind: Limits\nqsp: 5").unwrap_err();
//! assert_eq!(error.to_string(), "strict decoding error: unknown field \"qsp\"");
//! ```

use crate::decode::{self, Decoded, TypeMeta, type_meta};
use crate::schema::{Schemas, Struct};
use mizzen_value::Value;
use mizzen_value::{json, yaml};

/// The kinds that a file may have.
#[derive(Clone, Copy)]
pub struct ConfigScheme<'a> {
    /// The name of the scheme in errors: the place where upstream creates it.
    pub name: &'a str,
    /// The `group/version` and the name of each kind.
    pub kinds: &'a [(&'a str, &'a str)],
    /// Their types. A version without a type of its own has that of the first version of its kind.
    pub types: &'a Schemas,
}

/// Why a file was not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFileError {
    /// It is neither YAML nor JSON, or a field has a wrong type.
    #[error("{0}")]
    Invalid(String),
    /// It has no kind or version.
    #[error("Object '{field}' is missing in '{text}'")]
    Missing {
        /// `Kind` or `apiVersion`.
        field: &'static str,
        /// The file.
        text: String,
    },
    /// It is of another kind.
    #[error(
        "no kind {} is registered for version {} in scheme {}",
        json::quote(.kind), json::quote(.version), json::quote(.scheme)
    )]
    NotRegistered {
        /// The kind of the file.
        kind: String,
        /// Its version.
        version: String,
        /// The scheme.
        scheme: String,
    },
    /// It has unknown or duplicate fields.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

impl ConfigScheme<'_> {
    /// Decodes a file. Unknown fields are errors.
    pub fn decode(&self, text: &[u8]) -> Result<Value, ConfigFileError> {
        let decoded = self.decode_leniently(text)?;
        strict(decoded.complaints)?;
        Ok(decoded.value)
    }

    /// Decodes a file. Unknown and duplicate fields are dropped and reported.
    pub fn decode_leniently(&self, text: &[u8]) -> Result<Decoded, ConfigFileError> {
        let is_json = text.trim_ascii_start().starts_with(b"{");
        let document = match yaml::read(text) {
            Ok(document) => document,
            Err(_) if is_json => yaml::YamlDocument {
                value: Value::Null,
                complaint: None,
            },
            Err(error) => return Err(ConfigFileError::Invalid(error.to_string())),
        };
        let converted = document.to_json();
        let plain = if is_json { text } else { &converted };
        let meta = type_meta(plain).map_err(|why| {
            ConfigFileError::Invalid(format!(
                "couldn't get version/kind; json parse error: {why}"
            ))
        })?;
        let missing = |field| {
            let text = String::from_utf8_lossy(text).into_owned();
            Err(ConfigFileError::Missing { field, text })
        };
        if meta.kind.is_empty() {
            return missing("Kind");
        }
        if meta.api_version.is_empty() {
            return missing("apiVersion");
        }
        let mut decoded = self.decode_as(&meta, plain)?;
        // The JSON decoder reports duplicate fields, except in untyped values.
        if !is_json || decoded.complaints.is_empty() {
            decoded.complaints.splice(0..0, document.complaint);
        }
        Ok(decoded)
    }

    /// Decodes JSON as a kind, leniently.
    pub fn decode_as(&self, meta: &TypeMeta, text: &[u8]) -> Result<Decoded, ConfigFileError> {
        let Some(ty) = self.type_of(meta) else {
            return Err(ConfigFileError::NotRegistered {
                kind: meta.kind.to_string(),
                version: meta.api_version.to_string(),
                scheme: self.name.into(),
            });
        };
        decode::decode(ty, text).map_err(|error| ConfigFileError::Invalid(error.to_string()))
    }

    fn type_of(&self, meta: &TypeMeta) -> Option<&Struct> {
        let is_registered = self.kinds.contains(&(&*meta.api_version, &*meta.kind));
        let mut versions = self.kinds.iter().filter(|(_, kind)| *kind == &*meta.kind);
        let first = versions.next().filter(|_| is_registered)?.0;
        let named = |version: &str| {
            self.types
                .types
                .get(format!("{version}.{}", meta.kind).as_str())
        };
        named(&meta.api_version)
            .or_else(|| named(first))
            .map(|ty| &**ty)
    }
}

/// The error for these complaints, if there are any.
pub fn strict(complaints: Vec<String>) -> Result<(), ConfigFileError> {
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(ConfigFileError::Strict(complaints)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    const TYPES: &str = "group example.com\nversion v1\n\ntype Limits\n  - kind string\n  - apiVersion string\n  - qps int32\n  - extra RawExtension\n";

    fn decoded(text: &str) -> String {
        let types = schema::parse([("limits.types", TYPES)]).unwrap();
        let kinds = [
            ("example.com/v1", "Limits"),
            ("example.com/v1beta1", "Limits"),
        ];
        let scheme = ConfigScheme {
            name: "a.go:1",
            kinds: &kinds,
            types: &types,
        };
        match scheme.decode(text.as_bytes()) {
            Ok(value) => json::to_string(&value),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_file_is_decoded_strictly_with_kubernetes_errors() {
        let head = "apiVersion: example.com/v1\nkind: Limits\n";
        let cases = [
            (
                format!("{head}qps: 5"),
                r#"{"kind":"Limits","apiVersion":"example.com/v1","qps":5}"#,
            ),
            (
                format!("{}qps: 5", head.replace("v1", "v1beta1")),
                r#"{"kind":"Limits","apiVersion":"example.com/v1beta1","qps":5}"#,
            ),
            (
                r#" {"kind":"Limits","apiVersion":"example.com/v1","qps":5}"#.into(),
                r#"{"kind":"Limits","apiVersion":"example.com/v1","qps":5}"#,
            ),
            (String::new(), "Object 'Kind' is missing in ''"),
            ("qps: 5".into(), "Object 'Kind' is missing in 'qps: 5'"),
            (
                "kind: Limits".into(),
                "Object 'apiVersion' is missing in 'kind: Limits'",
            ),
            (
                "apiVersion: v1\nkind: Pod".into(),
                r#"no kind "Pod" is registered for version "v1" in scheme "a.go:1""#,
            ),
            (
                head.replace("v1", "v2"),
                r#"no kind "Limits" is registered for version "example.com/v2" in scheme "a.go:1""#,
            ),
            (
                format!("{head}qsp: 5\nmore: {{}}"),
                r#"strict decoding error: unknown field "more", unknown field "qsp""#,
            ),
            (
                format!("{head}qps: 5\nqps: 6\nqsp: 1"),
                "strict decoding error: yaml: unmarshal errors:\n  line 4: key \"qps\" already set in map, unknown field \"qsp\"",
            ),
            (
                r#"{"kind":"Limits","apiVersion":"example.com/v1","qps":5,"qps":6}"#.into(),
                r#"strict decoding error: duplicate field "qps""#,
            ),
            (
                format!("{head}qps: many"),
                "json: cannot unmarshal string into Go struct field Limits.qps of type int32",
            ),
            (
                "{kind: Limits}".into(),
                "couldn't get version/kind; json parse error: invalid character 'k' looking for beginning of object key string",
            ),
            (
                "- a".into(),
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(decoded(&text), expected, "{text}");
        }
        assert!(
            decoded("a: b: c").starts_with("yaml: "),
            "{}",
            decoded("a: b: c")
        );
    }
}
