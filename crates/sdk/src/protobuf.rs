//! The protobuf content type: objects are sent as protobuf messages and are JSON on either side.
//!
//! As client-go with the content type `application/vnd.kubernetes.protobuf`: reads accept protobuf
//! and JSON, so that a server can return custom resources in JSON, and objects of known types are
//! written as protobuf. Watches, patches, deletions and discovery stay JSON.
//!
//! The caller supplies the types, such as those of `mizzen_kinds::catalog()`. Fields that a type
//! does not have are not sent.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, request};
use kube::client::Body;
use kube::{Client, Error};
use mizzen_object::proto::wire::WireReader;
use mizzen_object::proto::{self, ProtoError, Unknown};
use mizzen_object::schema::{Schemas, Struct};
use mizzen_object::{GroupVersionKind, KindData};
use mizzen_value::{Value, json};
use tower::service_fn;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_OR_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The message types of kinds, by `apiVersion` and `kind`. Cheap to clone.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::protobuf::Protobuf;
///
/// let catalog = mizzen_kinds::catalog();
/// let protobuf = Protobuf::new(&catalog.schemas, catalog.kinds.iter().map(|kind| &*kind.data));
/// let client = protobuf.wrap(client); // requests and responses are protobuf
/// let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
/// assert!(namespaces.get("default").await.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Protobuf(Arc<MessageTypes>);

#[derive(Default)]
struct MessageTypes {
    objects: HashMap<(String, String), (GroupVersionKind, Arc<Struct>)>,
    /// The types of list items.
    items: HashMap<(String, String), Arc<Struct>>,
    list_meta: Option<Arc<Struct>>,
}

/// Why a protobuf response cannot be decoded.
#[derive(Debug, thiserror::Error)]
enum DecodeError {
    #[error(transparent)]
    Proto(#[from] ProtoError),
    #[error("no message type is known for kind {1:?} in version {0:?}")]
    UnknownKind(String, String),
}

impl Protobuf {
    /// Protobuf for `kinds`. `schemas` has the types that all kinds share: `Status` and `ListMeta`.
    pub fn new<'a>(schemas: &Schemas, kinds: impl IntoIterator<Item = &'a KindData>) -> Protobuf {
        let mut types = MessageTypes {
            list_meta: schemas.types.get("meta/v1.ListMeta").cloned(),
            ..MessageTypes::default()
        };
        let status = GroupVersionKind {
            group: "".into(),
            version: "v1".into(),
            kind: "Status".into(),
        };
        if let Some(ty) = schemas.types.get("meta/v1.Status") {
            types
                .objects
                .insert(name(&status, &status.kind), (status, ty.clone()));
        }
        for kind in kinds {
            if let Some(list_kind) = &kind.list_kind {
                types
                    .items
                    .insert(name(&kind.gvk, list_kind), kind.root.clone());
            }
            types.objects.insert(
                name(&kind.gvk, &kind.gvk.kind),
                (kind.gvk.clone(), kind.root.clone()),
            );
        }
        Protobuf(Arc::new(types))
    }

    /// A client that sends its requests through `client`, in protobuf where that is possible.
    pub fn wrap(&self, client: Client) -> Client {
        let (namespace, valid_until) = (
            client.default_namespace().to_string(),
            *client.valid_until(),
        );
        let types = self.0.clone();
        let service = service_fn(move |request| {
            let (client, types) = (client.clone(), types.clone());
            async move { types.send(&client, request).await }
        });
        Client::new(service, namespace).with_valid_until(valid_until)
    }
}

fn name(gvk: &GroupVersionKind, kind: &str) -> (String, String) {
    (gvk.api_version().to_string(), kind.to_string())
}

impl MessageTypes {
    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
        let (mut parts, mut body) = request.into_parts();
        let is_read = parts.method == Method::GET;
        if is_read && is_object(&parts) {
            parts
                .headers
                .insert(ACCEPT, HeaderValue::from_static(PROTOBUF_OR_JSON));
        } else if !is_read
            && has(&parts.headers, CONTENT_TYPE, JSON)
            && accepts_json(&parts.headers)
        {
            let text = body.collect_bytes().await?;
            body = match self.encode(&text) {
                Some(message) => {
                    parts
                        .headers
                        .insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
                    parts
                        .headers
                        .insert(ACCEPT, HeaderValue::from_static(PROTOBUF_OR_JSON));
                    parts.headers.remove(CONTENT_LENGTH);
                    message.into()
                }
                None => text.into(),
            };
        }
        let again = is_read.then(|| (parts.uri.clone(), parts.headers.clone()));
        let (mut head, body) = client
            .send(Request::from_parts(parts, body))
            .await?
            .into_parts();
        if !has(&head.headers, CONTENT_TYPE, PROTOBUF) {
            return Ok(Response::from_parts(head, body));
        }
        let text = match (self.decode(&body.collect_bytes().await?), again) {
            (Ok(value), _) => json::to_string(&value),
            // The type of the kind is unknown, such as that of a subresource: read again, in JSON.
            (Err(DecodeError::UnknownKind(..)), Some((uri, mut headers))) => {
                headers.insert(ACCEPT, HeaderValue::from_static(JSON));
                let mut request = Request::get(uri)
                    .body(Body::empty())
                    .map_err(Error::HttpError)?;
                *request.headers_mut() = headers;
                return client.send(request).await;
            }
            (Err(error), _) => return Err(Error::Service(error.into())),
        };
        head.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        head.headers.remove(CONTENT_LENGTH);
        Ok(Response::from_parts(head, text.into_bytes().into()))
    }

    /// The message of a JSON object of a known type.
    fn encode(&self, text: &[u8]) -> Option<Vec<u8>> {
        let value = json::parse(text).ok()?;
        let name = (
            value["apiVersion"].str().to_string(),
            value["kind"].str().to_string(),
        );
        let (gvk, ty) = self.objects.get(&name)?;
        Some(proto::encode_object(gvk, ty, &value))
    }

    /// The object or list of a message.
    fn decode(&self, bytes: &[u8]) -> Result<Value, DecodeError> {
        let Unknown {
            api_version,
            kind,
            raw,
        } = proto::decode_object(bytes)?;
        let name = (api_version.to_string(), kind.to_string());
        let mut value = match (
            self.objects.get(&name),
            self.items.get(&name),
            &self.list_meta,
        ) {
            (Some((_, ty)), ..) => proto::decode_message(ty, raw)?,
            (None, Some(item), Some(list_meta)) => decode_list(list_meta, item, raw)?,
            _ => return Err(DecodeError::UnknownKind(name.0, name.1)),
        };
        value.set("apiVersion", api_version);
        value.set("kind", kind);
        Ok(value)
    }
}

fn decode_list(list_meta: &Struct, item: &Struct, message: &[u8]) -> Result<Value, ProtoError> {
    let mut list = Value::object();
    list.set("metadata", Value::object());
    list.entry("items").make_list();
    let mut reader = WireReader::new(message);
    while let Some((tag, content)) = reader.field()? {
        match tag {
            1 => list.set(
                "metadata",
                proto::decode_message(list_meta, content.bytes("ListMeta")?)?,
            ),
            2 => list
                .entry("items")
                .make_list()
                .push(proto::decode_message(item, content.bytes("Items")?)?),
            _ => {}
        }
    }
    Ok(list)
}

/// Whether a read is for objects in JSON: not a watch, not discovery, and not metadata alone.
fn is_object(parts: &request::Parts) -> bool {
    let mut segments = parts.uri.path().split('/').skip(1);
    let n_before = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    let is_watch = crate::rate_limit::is_watch(&parts.method, &parts.uri);
    segments.nth(n_before).is_some() && !is_watch && accepts_json(&parts.headers)
}

fn accepts_json(headers: &HeaderMap) -> bool {
    !headers.contains_key(ACCEPT) || has(headers, ACCEPT, JSON)
}

fn has(headers: &HeaderMap, header: HeaderName, wanted: &str) -> bool {
    headers.get(header).is_some_and(|value| value == wanted)
}
