//! Response objects of audit events, as JSON.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use mizzen_audit::remove_managed_fields;
use mizzen_object::proto;
use mizzen_serving::MetaSchemas;
use mizzen_value::{Value, json, yaml};

use crate::response::{AuditJson, Body, Response, ResponseEncoding};

/// The Status of a response; `null` if it is another object.
pub(super) fn response_status(types: &MetaSchemas, answer: &Response) -> Value {
    let Some(body) = answer.body().whole() else {
        return Value::Null;
    };
    let read = match media_type(answer) {
        JSON if body.starts_with(b"{\"kind\":\"Status\"") || answer.status().as_u16() >= 400 => {
            json::parse(body).ok()
        }
        YAML if answer.status().as_u16() >= 400 => yaml::read(body).ok().map(|read| read.value),
        PROTOBUF => proto::decode_object(body)
            .ok()
            .filter(|unknown| unknown.kind == "Status")
            .and_then(|unknown| proto::decode_message(&types.status, unknown.raw).ok())
            .map(|mut status| {
                status.set("kind", "Status");
                status
            }),
        _ => None,
    };
    read.filter(|value| value["kind"].str() == "Status")
        .unwrap_or_default()
}

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn media_type(answer: &Response) -> &str {
    answer
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
}

/// The response object. A body without `kind` is not one.
pub(super) fn response_object(answer: &mut Response, omits_managed_fields: bool) -> Option<Bytes> {
    let text = response_json(answer)?;
    let text = text.slice(..text.trim_ascii_end().len());
    if !text.starts_with(b"{\"kind\":") && !text.starts_with(b"{\"apiVersion\":") {
        return None;
    }
    if !omits_managed_fields {
        return Some(text);
    }
    let mut object = json::parse(&text).ok()?;
    remove_managed_fields(&mut object);
    Some(json::to_string(&object).into())
}

/// The JSON of a response: its body, or the text kept beside it.
fn response_json(answer: &mut Response) -> Option<Bytes> {
    if let Some(AuditJson(text)) = answer.extensions_mut().remove() {
        return Some(text);
    }
    if media_type(answer) != ResponseEncoding::Json.media_type() || answer.body().is_stream() {
        return None;
    }
    let bytes = std::mem::replace(answer.body_mut(), Body::from("")).into_bytes()?;
    *answer.body_mut() = Body::from(bytes.clone());
    Some(bytes)
}
