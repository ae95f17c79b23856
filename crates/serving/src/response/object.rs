//! One object, or a Status, in the negotiated form.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{GroupVersionKind, KindData, Status, proto, schema::Struct};
use mizzen_registry::{Object, Resource};
use mizzen_value::{Value, json, yaml};

use super::body::SharedMemory;
use super::table::TableRenderer;
use super::{Accept, Body, Response, ResponseEncoding, ResponseForm, with_audit_json, with_body};
use crate::MetaSchemas;

/// From this size it is worth checking whether the text of an object is still in the store.
const LONG: usize = 64 * 1024;

/// How objects of a resource are rendered for one request.
pub struct Renderer<'a> {
    /// The types that every server has.
    pub types: &'a MetaSchemas,
    /// The resource of the objects.
    pub resource: &'a Resource,
    /// The negotiated media type.
    pub accept: Accept,
    /// How much of the object a table row has: `None`, `Metadata` or `Object`.
    pub include: &'a str,
    /// The current time, in Unix seconds.
    pub now: i64,
}

impl Renderer<'_> {
    /// The response with one object.
    pub fn object(&self, object: &Object, code: u16) -> Response {
        with_audit_json(self.accept, |accept| match accept.form {
            ResponseForm::Whole => {
                let body = self.whole_object(object, accept);
                with_body(code, accept.encoding.media_type(), body)
            }
            ResponseForm::Metadata(version) => {
                let gvk = meta_kind(version, "PartialObjectMetadata");
                let text = partial(self.resource.kind(), object, version);
                from_text(&gvk, Some(&self.types.partial), text, accept, code)
            }
            ResponseForm::Table(version) => {
                let text = self.table(version, std::slice::from_ref(object), None);
                from_text(&meta_kind(version, "Table"), None, text, accept, code)
            }
        })
    }

    fn whole_object(&self, object: &Object, accept: Accept) -> Body {
        match accept.encoding {
            ResponseEncoding::Json if accept.pretty => json::pretty(&object.json).into(),
            ResponseEncoding::Json => self.stored_json(object),
            ResponseEncoding::Yaml => yaml::write(&object.value()).into(),
            ResponseEncoding::Protobuf => {
                let gvk = &self.resource.kind().gvk;
                proto::envelope(gvk, &message(self.resource, object)).into()
            }
        }
    }

    /// The JSON of an object. If it is long and still in the store, the body shares its memory.
    fn stored_json(&self, object: &Object) -> Body {
        let (text, space) = (object.json.clone(), self.resource.space());
        let Some(record) = object.record().filter(|_| text.len() > LONG) else {
            return Body::line(text);
        };
        // In this order: a replacement after this line is counted.
        let shared = SharedMemory::new(space, space.superseded());
        let snapshot = space.snapshot();
        let is_current = snapshot
            .get(&record.key)
            .is_some_and(|it| Arc::ptr_eq(it, record));
        match is_current && record.value.as_ptr() == text.as_ptr() {
            true => Body::shared_pieces(vec![text, Bytes::from_static(b"\n")], 0, shared),
            false => Body::line(text),
        }
    }

    pub(super) fn table(
        &self,
        version: &str,
        objects: &[Object],
        metadata: Option<&Value>,
    ) -> Bytes {
        TableRenderer {
            resource: self.resource,
            version,
            include: self.include,
            now: self.now,
            headings: true,
        }
        .text(objects, metadata)
    }
}

/// The protobuf message of an object, encoded once.
pub fn message(resource: &Resource, object: &Object) -> Bytes {
    let make = || {
        let mut message = Vec::with_capacity(object.json.len());
        proto::encode_message(&resource.kind().root, &object.value(), &mut message);
        Bytes::from(message)
    };
    match object.forms(resource) {
        Some(forms) => forms.proto.get_or_init(make).clone(),
        None => make(),
    }
}

/// The `PartialObjectMetadata` of an object.
pub fn partial(kind: &KindData, object: &Object, version: &str) -> Bytes {
    let text = metadata(&object.json);
    if kind.hidden_annotations.is_empty() {
        return partial_of(text, version);
    }
    // Kubernetes: upstream takes metadata from its internal type, where some annotations have become fields.
    let mut metadata = json::parse(text).unwrap_or_default();
    if let Some(Value::Map(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| !kind.hidden_annotations.iter().any(|unseen| unseen == name));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    partial_of(json::to_string(&metadata).as_bytes(), version)
}

/// The `PartialObjectMetadata` of a representation of an object, such as its Scale.
pub(super) fn plain_partial(object: &Object, version: &str) -> Bytes {
    partial_of(metadata(&object.json), version)
}

fn partial_of(metadata: &[u8], version: &str) -> Bytes {
    let mut text = Vec::with_capacity(metadata.len() + 96);
    text.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    text.extend_from_slice(version.as_bytes());
    text.extend_from_slice(b"\",\"metadata\":");
    text.extend_from_slice(metadata);
    text.push(b'}');
    text.into()
}

/// The JSON of an object's metadata, found in the JSON of the object.
fn metadata(text: &[u8]) -> &[u8] {
    let find = || {
        let mut scanner = json::JsonScanner::new(text);
        scanner.peek().ok()?;
        scanner.open_map().ok()?;
        while let Some(key) = scanner.key().ok()? {
            let start = scanner.offset();
            json::skip(&mut scanner).ok()?;
            if key == "metadata" {
                return Some(scanner.slice(start, scanner.offset()));
            }
        }
        None
    };
    find().unwrap_or(b"{}")
}

/// A kind of the group `meta.k8s.io`.
pub fn meta_kind(version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "meta.k8s.io".into(),
        version: version.into(),
        kind: kind.into(),
    }
}

/// The response with a value of which the JSON is known.
pub(super) fn from_text(
    gvk: &GroupVersionKind,
    ty: Option<&Struct>,
    text: Bytes,
    accept: Accept,
    code: u16,
) -> Response {
    match accept.encoding {
        ResponseEncoding::Json if accept.pretty => {
            with_body(code, "application/json", json::pretty(&text))
        }
        ResponseEncoding::Json => with_body(code, "application/json", Body::line(text)),
        _ => value(
            gvk,
            ty,
            &json::parse(&text).unwrap_or_default(),
            accept,
            code,
        ),
    }
}

/// The response with a value; `ty` is needed only for protobuf. Kubernetes: compact JSON ends with a newline, indented JSON
/// does not (serializer/json/json.go).
pub fn value(
    gvk: &GroupVersionKind,
    ty: Option<&Struct>,
    value: &Value,
    accept: Accept,
    code: u16,
) -> Response {
    with_audit_json(accept, |accept| {
        let body: Body = match (accept.encoding, ty) {
            (ResponseEncoding::Protobuf, Some(ty)) => proto::encode_object(gvk, ty, value).into(),
            (ResponseEncoding::Yaml, _) => yaml::write(value).into(),
            _ if accept.pretty => json::pretty(json::to_string(value).as_bytes()).into(),
            _ => (json::to_string(value) + "\n").into(),
        };
        let media_type = match (accept.encoding, ty) {
            (ResponseEncoding::Protobuf, None) => "application/json",
            (encoding, _) => encoding.media_type(),
        };
        with_body(code, media_type, body)
    })
}

/// The kind of a Status.
pub fn status_kind() -> GroupVersionKind {
    GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Status".into(),
    }
}

/// The response with a Status object.
pub fn status_value(types: &MetaSchemas, status: &Value, accept: Accept, code: u16) -> Response {
    let (gvk, ty) = (status_kind(), Some(&*types.status));
    value(&gvk, ty, status, accept.whole(), code)
}

/// The response to a request that failed.
pub fn status(types: &MetaSchemas, status: &Status, accept: Accept) -> Response {
    let mut answer = status_value(types, &status.to_value(), accept, status.code);
    if let Some(seconds) = status.retry_after {
        answer
            .headers_mut()
            .insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}
