//! Swagger 2.0: one document for everything, as JSON or as protobuf.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mizzen_value::{Map, Value, json, value};

use super::definition::{DefinitionSet, SpecVersion, kind_value, references};
use super::hash::short_hash;
use super::operation::{PathItem, PathOperation, RequestBody, paths};
use super::parameter::Parameter;
use super::prose::Prose;
use super::v3::{encode, meaning, object, security_scheme, shared_parameters, sorted};
use super::{SpecContext, SpecDocument, SpecPage, hash, proto};

/// Writes the document as JSON, merged with `aggregated` documents.
pub(super) fn json<'a>(
    pages: impl Iterator<Item = &'a Arc<SpecPage>>,
    context: &SpecContext,
    others: &[Value],
) -> SpecDocument {
    let mut parts = V2Parts::write(
        &pages.map(Arc::as_ref).collect::<Vec<_>>(),
        context,
        encode,
        encode,
    );
    others
        .iter()
        .for_each(|other| parts.join(other, encode, encode));
    let mut out =
        br#"{"swagger":"2.0","info":{"title":"Kubernetes","version":"1.36"},"paths":"#.to_vec();
    object(&mut out, parts.paths);
    out.extend_from_slice(br#","definitions":"#);
    object(&mut out, parts.definitions);
    out.extend_from_slice(br#","parameters":"#);
    object(
        &mut out,
        parts
            .parameters
            .into_iter()
            .map(|(name, value)| (name, encode(&value))),
    );
    out.extend_from_slice(br#","securityDefinitions":{"BearerToken":"#);
    json::write(&security_scheme(), &mut out);
    out.extend_from_slice(br#"},"security":[{"BearerToken":[]}]}"#);
    finish(out)
}

/// Writes the document as protobuf, merged with `aggregated` documents.
pub(super) fn proto<'a>(
    pages: impl Iterator<Item = &'a Arc<SpecPage>>,
    context: &SpecContext,
    others: &[Value],
) -> SpecDocument {
    let pages: Vec<&SpecPage> = pages.map(Arc::as_ref).collect();
    let mut parts = V2Parts::write(&pages, context, proto::path_item, proto::schema);
    others
        .iter()
        .for_each(|other| parts.join(other, proto::path_item, proto::schema));
    let parameters = parts
        .parameters
        .iter()
        .map(|(name, value)| (name.clone(), proto::parameter(value)));
    let info = value!({"title": "Kubernetes", "version": "1.36"});
    finish(proto::document(
        &info,
        parts.paths,
        parts.definitions,
        parameters,
        &security_scheme(),
    ))
}

fn finish(mut out: Vec<u8>) -> SpecDocument {
    out.shrink_to_fit();
    let hash = hash(&out);
    SpecDocument::new(out, hash)
}

/// The encoded parts of the document.
struct V2Parts {
    paths: BTreeMap<String, Vec<u8>>,
    definitions: BTreeMap<String, Vec<u8>>,
    parameters: BTreeMap<String, Value>,
}

impl V2Parts {
    fn write(
        pages: &[&SpecPage],
        context: &SpecContext,
        encode_path: fn(&Value) -> Vec<u8>,
        encode_schema: fn(&Value) -> Vec<u8>,
    ) -> V2Parts {
        let mut roots: BTreeSet<String> = BTreeSet::new();
        let mut find = |value: &Value| references(value, SpecVersion::V2.prefix(), &mut roots);
        let (mut written, mut parameters) = (BTreeMap::new(), BTreeMap::new());
        for path in pages.iter().flat_map(|page| paths(page, context)) {
            let item = path_item(&path, &mut parameters);
            find(&item);
            written.insert(path.path, encode_path(&item));
        }
        parameters.values().for_each(&mut find);

        let kinds = pages.iter().flat_map(|page| &page.kinds);
        let definitions = DefinitionSet::new(SpecVersion::V2, context, kinds, Prose::load())
            .reachable(roots, encode_schema);
        V2Parts {
            paths: written,
            definitions,
            parameters,
        }
    }

    /// Adds the paths of another document and the types that they refer to. Existing ones are kept.
    fn join(
        &mut self,
        other: &Value,
        encode_path: fn(&Value) -> Vec<u8>,
        encode_schema: fn(&Value) -> Vec<u8>,
    ) {
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        for (path, item) in other["paths"].entries() {
            references(item, SpecVersion::V2.prefix(), &mut wanted);
            self.paths
                .entry(path.into())
                .or_insert_with(|| encode_path(item));
        }
        for (name, parameter) in other["parameters"].entries() {
            references(parameter, SpecVersion::V2.prefix(), &mut wanted);
            self.parameters
                .entry(name.into())
                .or_insert_with(|| parameter.clone());
        }
        while let Some(name) = wanted.pop_first() {
            let schema = &other["definitions"][name.as_str()];
            if schema.is_null() || self.definitions.contains_key(&name) {
                continue;
            }
            references(schema, SpecVersion::V2.prefix(), &mut wanted);
            self.definitions.insert(name, encode_schema(schema));
        }
    }
}

/// Shared parameters by reference name.
type Shared = BTreeMap<String, Value>;

fn path_item(path: &PathItem, shared: &mut Shared) -> Value {
    let common = shared_parameters(path);
    let mut item = Map::default();
    for known in &path.operations {
        item.insert(known.method, operation(known, &common, shared));
    }
    if !common.is_empty() {
        item.insert(
            "parameters",
            common
                .into_iter()
                .map(|it| share(parameter(it), shared))
                .collect::<Vec<_>>(),
        );
    }
    Value::Map(item)
}

fn operation(operation: &PathOperation, common: &[&Parameter], shared: &mut Shared) -> Value {
    let mut value = value!({"description": (operation.description.as_str())});
    if !operation.consumes.is_empty() {
        value.set("consumes", list(operation.consumes));
    }
    value.set("produces", list(operation.produces));
    value.set("schemes", list(&["https"]));
    value.set("tags", list(&[&operation.tag]));
    value.set("operationId", operation.id.as_str());
    let own = sorted(
        operation
            .parameters
            .iter()
            .filter(|parameter| !common.contains(parameter)),
    );
    let sent = operation
        .body
        .iter()
        .map(body)
        .chain(own.into_iter().map(parameter));
    let sent: Vec<Value> = sent.map(|it| share(it, shared)).collect();
    if !sent.is_empty() {
        value.set("parameters", sent);
    }
    value.set("responses", responses(operation));
    if let Some(kind) = &operation.kind {
        value.set("x-kubernetes-action", operation.action);
        value.set(
            "x-kubernetes-group-version-kind",
            kind_value(&kind.group, &kind.version, &kind.kind),
        );
    }
    value
}

fn list(words: &[&str]) -> Vec<Value> {
    words.iter().map(|word| Value::from(*word)).collect()
}

fn responses(operation: &PathOperation) -> Map {
    let (codes, definition) = &operation.responses;
    let schema = match definition {
        Some(definition) => SpecVersion::V2.reference(definition),
        None => value!({"type": "string"}),
    };
    let mut responses = Map::default();
    for code in *codes {
        responses.insert(
            *code,
            value!({"description": (meaning(code)), "schema": (schema.clone())}),
        );
    }
    responses.insert("401", value!({"description": "Unauthorized"}));
    responses
}

fn body(body: &RequestBody) -> Value {
    let mut value = value!({"name": "body", "in": "body"});
    if body.required {
        value.set("required", true);
    }
    value.set("schema", SpecVersion::V2.reference(&body.definition));
    value
}

fn parameter(parameter: &Parameter) -> Value {
    let mut value = value!({
        "uniqueItems": true,
        "type": (parameter.ty),
        "description": (parameter.description.as_str()),
        "name": (parameter.name.as_str()),
        "in": (parameter.place),
    });
    if parameter.place == "path" {
        value.set("required", true);
    }
    value
}

/// Replaces a shared parameter by a reference.
///
/// Kubernetes: old clients look for `dryRun` and `fieldValidation` in the operation itself.
fn share(parameter: Value, shared: &mut Shared) -> Value {
    let name = parameter["name"].str();
    let own_body = name == "body"
        && !parameter["schema"]["$ref"]
            .str()
            .contains("io.k8s.apimachinery");
    if own_body || matches!(name, "name" | "dryRun" | "fieldValidation") {
        return parameter;
    }
    let name = format!("{name}-{}", short_hash(&encode(&parameter)));
    let reference = value!({"$ref": (format!("#/parameters/{name}"))});
    shared.insert(name, parameter);
    reference
}
