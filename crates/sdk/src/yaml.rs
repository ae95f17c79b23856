//! Objects from YAML and JSON files.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use mizzen_sdk::{Object, yaml};
//!
//! let text = b"kind: ConfigMap\ndata: {colour: red}\n---\nkind: Secret\n";
//! let objects: Vec<Object> = yaml::read_all(text)?;
//! assert_eq!(objects[1]["kind"].str(), "Secret");
//! let config: ConfigMap = yaml::read(b"apiVersion: v1\nkind: ConfigMap\ndata: {colour: red}")?;
//! assert_eq!(config.data.unwrap_or_default()["colour"], "red");
//! # Ok::<(), yaml::ReadError>(())
//! ```

use mizzen_value::yaml::{self, YamlError};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Why text cannot be read as an object.
///
/// ```
/// use mizzen_sdk::{Object, yaml};
///
/// assert!(matches!(yaml::read::<Object>(b"a: [1"), Err(yaml::ReadError::Yaml(_))));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no valid YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// Something other than a comment follows a document separator.
    #[error("invalid Yaml document separator: {0}")]
    Separator(String),
    /// It does not decode as the type.
    #[error("cannot read the object: {0}")]
    Read(#[from] serde_json::Error),
}

/// Reads one object: the first document of a YAML or JSON text.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::yaml;
///
/// let config: ConfigMap = yaml::read(b"apiVersion: v1\nkind: ConfigMap\ndata: {colour: red}")?;
/// assert_eq!(config.data.unwrap_or_default()["colour"], "red");
/// # Ok::<(), yaml::ReadError>(())
/// ```
pub fn read<K: DeserializeOwned>(text: &[u8]) -> Result<K, ReadError> {
    Ok(serde_json::from_slice(&yaml::to_json(text)?)?)
}

/// Reads all objects of a text: YAML documents separated by `---`, JSON objects one after the
/// other, or both. Empty documents are skipped. Of a repeated key the last one counts.
///
/// ```
/// use mizzen_sdk::{Object, yaml};
///
/// let objects: Vec<Object> = yaml::read_all(b"kind: ConfigMap\n---\n# nothing\n---\nkind: Secret\n")?;
/// assert_eq!(objects.len(), 2);
/// # Ok::<(), yaml::ReadError>(())
/// ```
pub fn read_all<K: DeserializeOwned>(text: &[u8]) -> Result<Vec<K>, ReadError> {
    let mut objects = Vec::new();
    for document in documents(text)? {
        for json in to_json(document)? {
            objects.push(serde_json::from_slice(&json)?);
        }
    }
    Ok(objects)
}

/// The JSON values of one document.
fn to_json(document: &[u8]) -> Result<Vec<Vec<u8>>, YamlError> {
    let stream = serde_json::Deserializer::from_slice(document).into_iter::<&RawValue>();
    let values = stream
        .map(|value| Ok(value?.get().into()))
        .collect::<serde_json::Result<Vec<_>>>();
    if let (true, Ok(values)) = (document.trim_ascii_start().starts_with(b"{"), values) {
        return Ok(values);
    }
    let json = yaml::to_json(document)?;
    Ok(if json == b"null" {
        Vec::new()
    } else {
        vec![json]
    })
}

/// The documents between lines that begin with `---`. Kubernetes: only a comment may follow on such
/// a line (apimachinery's util/yaml/decoder.go).
fn documents(text: &[u8]) -> Result<Vec<&[u8]>, ReadError> {
    let (mut documents, mut start, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = rest.trim_ascii();
            if !rest.is_empty() && !rest.starts_with(b"#") {
                return Err(ReadError::Separator(String::from_utf8_lossy(rest).into()));
            }
            documents.push(&text[start..at]);
            start = end;
        }
        at = end;
    }
    documents.push(&text[start..]);
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    fn kinds(text: &str) -> Result<Vec<String>, ReadError> {
        let objects: Vec<Object> = read_all(text.as_bytes())?;
        Ok(objects
            .iter()
            .map(|object| object["kind"].str().into())
            .collect())
    }

    #[test]
    fn documents_are_split_at_separators_and_empty_ones_skipped() {
        let check =
            |text: &str, expected: &[&str]| assert_eq!(kinds(text).unwrap(), expected, "{text:?}");
        check("", &[]);
        check("---\n# nothing\n---\n", &[]);
        check("kind: A", &["A"]);
        check(
            "--- # first\nkind: A\n---\n\n---\nkind: B\n--- \n",
            &["A", "B"],
        );
        check(
            "kind: A\nscript: |\n  ---\n  not a separator\n---\nkind: B",
            &["A", "B"],
        );
        check("kind: A\r\n---\r\nkind: B\r\n", &["A", "B"]);
        check(r#"{"kind":"A"}{"kind":"B"}"#, &["A", "B"]);
        check(
            "{\"kind\":\"A\"}\n---\n{kind: B}\n---\nkind: C",
            &["A", "B", "C"],
        );
        check("kind: A\nkind: B", &["B"]);
    }

    #[test]
    fn numbers_keep_their_notation_and_words_follow_yaml_1_1() {
        let object: Object =
            read(b"kind: A\nspec: {on: yes, mode: 0644, large: 9007199254740993}").unwrap();
        assert_eq!(
            object["spec"]["large"].as_int(),
            Some(9_007_199_254_740_993)
        );
        assert_eq!(object["spec"]["mode"].as_int(), Some(0o644));
        assert!(object["spec"]["true"].bool(), "{object:?}");
    }

    #[test]
    fn invalid_objects_are_rejected_with_a_reason() {
        let error = kinds("kind: A\n---kind: B").unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid Yaml document separator: kind: B"
        );
        assert!(matches!(kinds("kind: [").unwrap_err(), ReadError::Yaml(_)));
        assert!(matches!(
            read::<Vec<u8>>(b"kind: A").unwrap_err(),
            ReadError::Read(_)
        ));
    }
}
