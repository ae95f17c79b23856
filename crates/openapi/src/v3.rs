//! OpenAPI 3.0: a document for each group version.

use std::collections::BTreeSet;

use mizzen_value::{Map, Value, json, value};

use super::definition::{DefinitionSet, SpecVersion, gvk_value, references};
use super::operation::{PathItem, PathOperation, paths};
use super::parameter::Parameter;
use super::prose::Prose;
use super::{SpecContext, SpecPage};

/// Writes a document, with or without the descriptions of its definitions.
pub(super) fn write(page: &SpecPage, context: &SpecContext, with_prose: bool) -> Vec<u8> {
    let mut roots: BTreeSet<String> = BTreeSet::new();
    let custom = page
        .kinds
        .iter()
        .any(|published| published.schema.is_some());
    let (title, version) = if custom {
        ("Kubernetes CRD Swagger", "v0.1.0")
    } else {
        ("Kubernetes", "1.36")
    };
    let info = value!({"title": title, "version": version});
    let mut out = format!(
        r#"{{"openapi":"3.0.0","info":{},"paths":{{"#,
        json::to_string(&info)
    )
    .into_bytes();
    for (at, path) in paths(page, context).iter().enumerate() {
        let item = path_item(path);
        references(&item, SpecVersion::V3.prefix(), &mut roots);
        member(&mut out, at, &path.path, &encode(&item));
    }
    out.extend_from_slice(br#"},"components":"#);

    let prose = if with_prose {
        Prose::load()
    } else {
        Prose::default()
    };
    let schemas =
        DefinitionSet::new(SpecVersion::V3, context, &page.kinds, prose).reachable(roots, encode);
    let mut components: Vec<(String, Vec<u8>)> = Vec::new();
    if !schemas.is_empty() {
        let mut text = Vec::new();
        object(&mut text, schemas);
        components.push(("schemas".into(), text));
    }
    // Kubernetes: the documents of custom resources have no security schemes.
    if !custom {
        let schemes = value!({"BearerToken": (security_scheme())});
        components.push(("securitySchemes".into(), encode(&schemes)));
    }
    object(&mut out, components);
    out.push(b'}');
    out.shrink_to_fit();
    out
}

/// The security scheme of bearer tokens.
pub(super) fn security_scheme() -> Value {
    value!({
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    })
}

/// The description of a response code.
pub(super) fn meaning(code: &str) -> &'static str {
    match code {
        "201" => "Created",
        "202" => "Accepted",
        _ => "OK",
    }
}

/// The parameters that all operations of a path share, in order; they are written once for the
/// path.
pub(super) fn shared_parameters(path: &PathItem) -> Vec<&Parameter> {
    let Some((first, others)) = path.operations.split_first() else {
        return Vec::new();
    };
    let shared_by_all = |parameter: &&Parameter| {
        others
            .iter()
            .all(|other| other.parameters.contains(parameter))
    };
    sorted(first.parameters.iter().filter(shared_by_all))
}

/// Parameters sorted by name.
pub(super) fn sorted<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> Vec<&'a Parameter> {
    let mut parameters: Vec<&Parameter> = parameters.collect();
    parameters.sort();
    parameters
}

/// Writes an object of encoded members.
pub(super) fn object(out: &mut Vec<u8>, members: impl IntoIterator<Item = (String, Vec<u8>)>) {
    out.push(b'{');
    for (at, (name, text)) in members.into_iter().enumerate() {
        member(out, at, &name, &text);
    }
    out.push(b'}');
}

/// Writes a member of an object.
fn member(out: &mut Vec<u8>, at: usize, name: &str, text: &[u8]) {
    if at > 0 {
        out.push(b',');
    }
    json::write_string(name, out);
    out.push(b':');
    out.extend_from_slice(text);
}

/// The JSON text of a value.
pub(super) fn encode(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    json::write(value, &mut out);
    out
}

fn path_item(path: &PathItem) -> Value {
    let shared = shared_parameters(path);
    let mut item = Map::default();
    for known in &path.operations {
        item.insert(known.method, operation(known, &shared));
    }
    if !shared.is_empty() {
        item.insert(
            "parameters",
            shared.into_iter().map(parameter).collect::<Vec<_>>(),
        );
    }
    Value::Map(item)
}

fn operation(operation: &PathOperation, shared: &[&Parameter]) -> Value {
    let mut value = value!({
        "tags": [(operation.tag.as_str())],
        "description": (operation.description.as_str()),
        "operationId": (operation.id.as_str()),
    });
    let own = sorted(
        operation
            .parameters
            .iter()
            .filter(|parameter| !shared.contains(parameter)),
    );
    if !own.is_empty() {
        value.set(
            "parameters",
            own.into_iter().map(parameter).collect::<Vec<_>>(),
        );
    }
    if let Some(body) = &operation.body {
        let mut sent = value!({"content": (content(operation.consumes, Some(&body.definition)))});
        if body.required {
            sent.set("required", true);
        }
        value.set("requestBody", sent);
    }
    value.set("responses", responses(operation));
    if let Some(kind) = &operation.kind {
        value.set("x-kubernetes-action", operation.action);
        value.set("x-kubernetes-group-version-kind", gvk_value(kind));
    }
    value
}

fn responses(operation: &PathOperation) -> Map {
    let (codes, definition) = &operation.responses;
    let content = content(operation.produces, definition.as_deref());
    let mut responses = Map::default();
    for code in *codes {
        responses.insert(
            *code,
            value!({"description": (meaning(code)), "content": (content.clone())}),
        );
    }
    responses.insert("401", value!({"description": "Unauthorized"}));
    responses
}

fn content(media_types: &[&str], definition: Option<&str>) -> Map {
    let schema = match definition {
        Some(definition) => SpecVersion::V3.reference(definition),
        None => value!({"type": "string"}),
    };
    let mut content: Map = media_types
        .iter()
        .map(|media| (*media, value!({"schema": (schema.clone())})))
        .collect();
    content.sort();
    content
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value = value!({
        "name": (parameter.name.as_str()),
        "in": (parameter.place),
        "description": (parameter.description.as_str()),
    });
    if parameter.place == "path" {
        value.set("required", true);
    }
    value.set(
        "schema",
        value!({"type": (parameter.ty), "uniqueItems": true}),
    );
    value
}
