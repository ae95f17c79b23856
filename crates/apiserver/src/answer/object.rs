//! One object, or a Status, in the form that was asked for.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{GroupVersionKind, KindData, Status, proto, schema::Struct};
use mizzen_registry::{Object, Resource};
use mizzen_value::{Value, json, yaml};

use super::body::Shared;
use super::table::table;
use super::{Accept, Answer, Body, Encoding, Form, answer, keeping};
use crate::types::Types;

/// From how many bytes on it is worth finding out whether an object's text is the store's.
const LONG: usize = 64 * 1024;

/// An object of a resource.
pub fn object(
    types: &Types,
    resource: &Resource,
    object: &Object,
    accept: Accept,
    include: &str,
    now: i64,
    code: u16,
) -> Answer {
    keeping(accept, |accept| match accept.form {
        Form::Whole => {
            let body = whole(resource, object, accept);
            answer(code, accept.encoding.media_type(), body)
        }
        Form::Metadata(version) => {
            let gvk = meta_kind(version, "PartialObjectMetadata");
            let text = partial(resource.kind(), object, version);
            from_text(&gvk, Some(&types.partial), text, accept, code)
        }
        Form::Table(version) => {
            let text = table(
                resource,
                std::slice::from_ref(object),
                None,
                version,
                include,
                now,
            );
            from_text(&meta_kind(version, "Table"), None, text, accept, code)
        }
    })
}

fn whole(resource: &Resource, object: &Object, accept: Accept) -> Body {
    match accept.encoding {
        Encoding::Json if accept.pretty => pretty(&object.json).into(),
        Encoding::Json => stored(resource, object),
        Encoding::Yaml => yaml::write(&object.value()).into(),
        Encoding::Protobuf => {
            proto::envelope(&resource.kind().gvk, &message(resource, object)).into()
        }
    }
}

/// The text of an object. A long one that is still the store's is not the body's own.
fn stored(resource: &Resource, object: &Object) -> Body {
    let text = object.json.clone();
    let Some(record) = object.record().filter(|_| text.len() > LONG) else {
        return Body::line(text);
    };
    // In this order: what is replaced from now on is counted.
    let shared = Shared::new(resource.space(), resource.space().superseded());
    let is_current = resource
        .space()
        .snapshot()
        .get(&record.key)
        .is_some_and(|it| Arc::ptr_eq(it, record));
    match is_current && record.value.as_ptr() == text.as_ptr() {
        true => Body::shared_pieces(vec![text, Bytes::from_static(b"\n")], 0, shared),
        false => Body::line(text),
    }
}

/// An object's protobuf message, made once.
pub(crate) fn message(resource: &Resource, object: &Object) -> Bytes {
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

/// An object's metadata as an object of its own.
pub(crate) fn partial(kind: &KindData, object: &Object, version: &str) -> Bytes {
    let metadata = match kind.unseen.is_empty() {
        true => Cow::Borrowed(metadata(&object.json)),
        false => Cow::Owned(seen(kind, metadata(&object.json))),
    };
    wrap(&metadata, version)
}

/// The same for something that stands for an object, such as its Scale.
pub(super) fn plain_partial(object: &Object, version: &str) -> Bytes {
    wrap(metadata(&object.json), version)
}

/// Kubernetes: upstream takes metadata from its internal type, where some annotations have become fields.
fn seen(kind: &KindData, metadata: &[u8]) -> Vec<u8> {
    let mut metadata = json::parse(metadata).unwrap_or_default();
    if let Some(Value::Map(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| !kind.unseen.iter().any(|unseen| unseen == name));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    json::to_string(&metadata).into_bytes()
}

fn wrap(metadata: &[u8], version: &str) -> Bytes {
    let mut text = Vec::with_capacity(metadata.len() + 96);
    text.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    text.extend_from_slice(version.as_bytes());
    text.extend_from_slice(b"\",\"metadata\":");
    text.extend_from_slice(metadata);
    text.push(b'}');
    text.into()
}

/// The text of an object's metadata.
fn metadata(text: &[u8]) -> &[u8] {
    find_member(text, "metadata").unwrap_or(b"{}")
}

fn find_member<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut scanner = json::Scanner::new(text);
    scanner.peek().ok()?;
    scanner.open_map().ok()?;
    while let Some(key) = scanner.key().ok()? {
        let start = scanner.offset();
        json::skip(&mut scanner).ok()?;
        if key == name {
            return Some(scanner.slice(start, scanner.offset()));
        }
    }
    None
}

pub(crate) fn meta_kind(version: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind {
        group: "meta.k8s.io".into(),
        version: version.into(),
        kind: kind.into(),
    }
}

/// Something whose JSON text is known.
pub(super) fn from_text(
    gvk: &GroupVersionKind,
    ty: Option<&Struct>,
    text: Bytes,
    accept: Accept,
    code: u16,
) -> Answer {
    match accept.encoding {
        Encoding::Json if accept.pretty => answer(code, "application/json", pretty(&text)),
        Encoding::Json => answer(code, "application/json", Body::line(text)),
        _ => value(
            gvk,
            ty,
            &json::parse(&text).unwrap_or_default(),
            accept,
            code,
        ),
    }
}

/// Any value that says what it is; `ty` is needed for protobuf and for that only.
pub fn value(
    gvk: &GroupVersionKind,
    ty: Option<&Struct>,
    value: &Value,
    accept: Accept,
    code: u16,
) -> Answer {
    keeping(accept, |accept| written(gvk, ty, value, accept, code))
}

fn written(
    gvk: &GroupVersionKind,
    ty: Option<&Struct>,
    value: &Value,
    accept: Accept,
    code: u16,
) -> Answer {
    let body: Body = match (accept.encoding, ty) {
        (Encoding::Protobuf, Some(ty)) => proto::encode_object(gvk, ty, value).into(),
        (Encoding::Yaml, _) => yaml::write(value).into(),
        _ if accept.pretty => pretty(json::to_string(value).as_bytes()).into(),
        _ => (json::to_string(value) + "\n").into(),
    };
    let media_type = match (accept.encoding, ty) {
        (Encoding::Protobuf, None) => "application/json",
        (encoding, _) => encoding.media_type(),
    };
    answer(code, media_type, body)
}

/// What a Status says it is.
pub fn status_kind() -> GroupVersionKind {
    GroupVersionKind {
        group: "".into(),
        version: "v1".into(),
        kind: "Status".into(),
    }
}

/// A failure.
pub(crate) fn status(types: &Types, status: &Status, accept: Accept) -> Answer {
    let mut answer = value(
        &status_kind(),
        Some(&types.status),
        &status.to_value(),
        accept.whole(),
        status.code,
    );
    if let Some(seconds) = status.retry_after {
        answer
            .headers_mut()
            .insert(http::header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// Readable text. Kubernetes: it has no newline at its end, where compact text has one (serializer/json/json.go).
fn pretty(text: &[u8]) -> Vec<u8> {
    json::pretty(text)
}
