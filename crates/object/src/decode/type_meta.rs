//! `kind` and `apiVersion`, which are found before the object is decoded.

use mizzen_value::Str;
use mizzen_value::json::{self, JsonScanner, SyntaxError};

/// The type of an object; empty fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// The `apiVersion`.
    pub api_version: Str,
    /// The kind.
    pub kind: Str,
}

/// Go's name of the anonymous struct into which it decodes these two fields.
const GO_STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Finds `apiVersion` and `kind`. Kubernetes: case is ignored here, and only here (apimachinery's
/// SimpleMetaFactory uses Go's own decoder).
pub fn type_meta(text: &[u8]) -> Result<TypeMeta, String> {
    read(text).map_err(|error| error.to_string())?
}

fn read(text: &[u8]) -> Result<Result<TypeMeta, String>, SyntaxError> {
    let mut scanner = JsonScanner::new(text);
    let mut found = TypeMeta::default();
    let mut problem = None;
    match scanner.peek()? {
        b'{' => {
            scanner.open_map()?;
            while let Some(key) = scanner.key()? {
                let (name, slot) = match key.to_ascii_lowercase().as_str() {
                    "apiversion" => ("apiVersion", &mut found.api_version),
                    "kind" => ("kind", &mut found.kind),
                    _ => {
                        json::skip(&mut scanner)?;
                        continue;
                    }
                };
                match json::read(&mut scanner)? {
                    json::Value::String(text) => *slot = text,
                    json::Value::Null => {}
                    other => {
                        let word = other.go_word();
                        problem.get_or_insert(format!(
                            "json: cannot unmarshal {word} into Go struct field .{name} of type string"
                        ));
                    }
                }
            }
        }
        b'n' => scanner.null()?,
        _ => {
            let word = json::read(&mut scanner)?.go_word();
            problem = Some(format!(
                "json: cannot unmarshal {word} into Go value of type {GO_STRUCT}"
            ));
        }
    }
    scanner.end()?;
    Ok(problem.map_or(Ok(found), Err))
}
