//! Lists: the stored JSON or protobuf of each object, between a head and a tail.

use bytes::Bytes;
use mizzen_object::{GroupVersionKind, proto};
use mizzen_registry::{Object, ObjectList, Resource, Revision};
use mizzen_value::{Map, Value, json, yaml};

use super::body::SharedMemory;
use super::object::{from_text, message, meta_kind, partial};
use super::{
    Accept, Body, Renderer, Response, ResponseEncoding, ResponseForm, with_audit_json, with_body,
};

impl Renderer<'_> {
    /// The response with a list of objects.
    pub fn list(&self, list: &ObjectList) -> Response {
        let metadata = metadata(list);
        with_audit_json(self.accept, |accept| match accept.form {
            ResponseForm::Table(version) => {
                let text = self.table(version, &list.items, Some(&metadata));
                from_text(&meta_kind(version, "Table"), None, text, accept, 200)
            }
            ResponseForm::Metadata(version) => self.partial_list(list, &metadata, version, accept),
            ResponseForm::Whole => self.whole_list(list, &metadata, accept),
        })
    }
    fn whole_list(&self, list: &ObjectList, metadata: &Value, accept: Accept) -> Response {
        let resource = self.resource;
        let gvk = list_kind(resource);
        match accept.encoding {
            ResponseEncoding::Json if !accept.pretty => {
                let body = shared_body(resource, list, json_pieces(&gvk, resource, list, metadata));
                with_body(200, "application/json", body)
            }
            ResponseEncoding::Protobuf => {
                let mut head = Vec::new();
                proto::encode_message(&self.types.list_meta, metadata, &mut head);
                let pieces = protobuf_pieces(&gvk, resource, list, &head);
                let body = shared_body(resource, list, pieces);
                with_body(200, accept.encoding.media_type(), body)
            }
            _ => {
                let pieces = json_pieces(&gvk, resource, list, metadata);
                let text = Body::pieces(pieces).into_bytes().unwrap_or_default();
                if accept.encoding == ResponseEncoding::Yaml {
                    let value = json::parse(&text).unwrap_or_default();
                    return with_body(200, accept.encoding.media_type(), yaml::write(&value));
                }
                from_text(&gvk, None, text, accept, 200)
            }
        }
    }

    fn partial_list(
        &self,
        list: &ObjectList,
        metadata: &Value,
        version: &str,
        accept: Accept,
    ) -> Response {
        let gvk = meta_kind(version, "PartialObjectMetadataList");
        let mut text =
            b"{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/".to_vec();
        text.extend_from_slice(version.as_bytes());
        text.extend_from_slice(b"\",\"metadata\":");
        json::write(metadata, &mut text);
        if list.items.is_empty() {
            text.extend_from_slice(b",\"items\":null}");
        } else {
            text.extend_from_slice(b",\"items\":[");
            for (index, object) in list.items.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(&partial(self.resource.kind(), object, version));
            }
            text.extend_from_slice(b"]}");
        }
        let ty = Some(&*self.types.partial_list);
        from_text(&gvk, ty, text.into(), accept, 200)
    }
}

fn metadata(list: &ObjectList) -> Value {
    let mut metadata = Map::default();
    // A computed list has no version.
    if list.version != Revision(0) {
        metadata.insert("resourceVersion", list.version.to_string());
    }
    if !list.token.is_empty() {
        metadata.insert("continue", list.token.as_str());
    }
    if let Some(remaining) = list.remaining.filter(|remaining| *remaining > 0) {
        metadata.insert("remainingItemCount", remaining as i64);
    }
    Value::Map(metadata)
}

/// A body of pieces that share the memory of stored objects. An object that was converted counts as the body's own.
fn shared_body(resource: &Resource, list: &ObjectList, pieces: Vec<Bytes>) -> Body {
    let Some(superseded) = list.superseded else {
        return Body::pieces(pieces);
    };
    let is_converted = |object: &&Object| {
        object
            .record()
            .is_none_or(|record| record.value.as_ptr() != object.json.as_ptr())
    };
    let own = list
        .items
        .iter()
        .filter(is_converted)
        .map(|object| object.json.len() as u64)
        .sum();
    Body::shared_pieces(pieces, own, SharedMemory::new(resource.space(), superseded))
}

/// The list in protobuf, in pieces that share the cached messages of the objects.
fn protobuf_pieces(
    gvk: &GroupVersionKind,
    resource: &Resource,
    list: &ObjectList,
    metadata: &[u8],
) -> Vec<Bytes> {
    let items: Vec<Bytes> = list
        .items
        .iter()
        .map(|object| message(resource, object))
        .collect();
    let (mut headers, mut ends) = (
        Vec::with_capacity(4 * items.len()),
        Vec::with_capacity(items.len()),
    );
    for item in &items {
        proto::item_header(item.len(), &mut headers);
        ends.push(headers.len());
    }
    let length = headers.len() + items.iter().map(Bytes::len).sum::<usize>();
    let (head, tail) = proto::list_ends(gvk, metadata, length);
    let (headers, mut start) = (Bytes::from(headers), 0);
    let mut pieces = Vec::with_capacity(items.len() * 2 + 2);
    pieces.push(Bytes::from(head));
    for (item, end) in items.into_iter().zip(ends) {
        pieces.push(headers.slice(start..end));
        pieces.push(item);
        start = end;
    }
    pieces.push(Bytes::from(tail));
    pieces
}

fn list_kind(resource: &Resource) -> GroupVersionKind {
    let kind = resource.kind();
    let name = kind
        .list_kind
        .clone()
        .unwrap_or_else(|| format!("{}List", kind.gvk.kind).into());
    GroupVersionKind {
        kind: name,
        ..kind.gvk.clone()
    }
}

/// The JSON of the list, in pieces that share the memory of the objects. Items have no kind and apiVersion.
fn json_pieces(
    gvk: &GroupVersionKind,
    resource: &Resource,
    list: &ObjectList,
    metadata: &Value,
) -> Vec<Bytes> {
    if resource.is_custom() {
        return custom_json_pieces(gvk, list, metadata);
    }
    let mut head = b"{\"kind\":".to_vec();
    json::write_string(&gvk.kind, &mut head);
    head.extend_from_slice(b",\"apiVersion\":");
    json::write_string(&gvk.api_version(), &mut head);
    head.extend_from_slice(b",\"metadata\":");
    json::write(metadata, &mut head);
    head.extend_from_slice(b",\"items\":[");
    let named = resource.head().len();
    let mut pieces = Vec::with_capacity(list.items.len() * 2 + 2);
    pieces.push(Bytes::from(head));
    for (index, object) in list.items.iter().enumerate() {
        pieces.push(Bytes::from_static(if index == 0 { b"{" } else { b",{" }));
        pieces.push(object.json.slice(named.min(object.json.len())..));
    }
    pieces.push(Bytes::from_static(b"]}\n"));
    pieces
}

/// The JSON of a list of custom objects: its fields are sorted, and items have kind and apiVersion.
fn custom_json_pieces(gvk: &GroupVersionKind, list: &ObjectList, metadata: &Value) -> Vec<Bytes> {
    let head = format!(
        "{{\"apiVersion\":{},\"items\":[",
        json::quote(&gvk.api_version())
    );
    let mut pieces = Vec::with_capacity(list.items.len() * 2 + 2);
    pieces.push(Bytes::from(head));
    for (index, object) in list.items.iter().enumerate() {
        if index > 0 {
            pieces.push(Bytes::from_static(b","));
        }
        pieces.push(object.json.clone());
    }
    let mut metadata = metadata.clone();
    metadata.set_default("continue", "");
    metadata.make_map().sort();
    let tail = format!(
        "],\"kind\":{},\"metadata\":{}}}\n",
        json::quote(&gvk.kind),
        json::to_string(&metadata)
    );
    pieces.push(Bytes::from(tail));
    pieces
}
