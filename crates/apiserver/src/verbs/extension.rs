//! Resources and subresources with handlers of a [`Builder`](crate::Builder): [`Storage`](crate::extend::Storage),
//! [`SubresourceHandler`](crate::extend::SubresourceHandler) and [`ConnectHandler`](crate::extend::ConnectHandler).

use mizzen_object::{Action, Kind, Status, Violations, schema};
use mizzen_registry::{
    Object, ObjectList, Revision, Selection, ValidatingAdmission as _, WatchEvent,
};
use mizzen_value::{Value, json, yaml};
use tokio::sync::mpsc;

use super::create::wipe_system_metadata;
use super::{ResourceCall, check_name, set_namespace, watch};
use crate::admission;
use crate::decode::{self, BodyType};
use crate::extend::{
    self, ErasedConnectHandler, ErasedStorage, ErasedSubresourceHandler, Extension, RequestContext,
};
use crate::options::{self, ListQuery};
use crate::response::{self, Response};

/// How many events of a storage are buffered for a client.
const MAX_BUFFERED_EVENTS: usize = 64;

pub(super) async fn answer(
    call: &ResourceCall<'_>,
    own: &Extension,
    verb: &str,
) -> Result<Response, Status> {
    match own {
        Extension::Subresource(handler) => serve_subresource(call, &**handler).await,
        Extension::Connect(handler) => serve_connect(call, &**handler).await,
        Extension::Storage(storage) => serve_storage(call, &**storage, verb).await,
        Extension::Handler(handle) => handle(call).await,
    }
}

async fn serve_storage(
    call: &ResourceCall<'_>,
    storage: &dyn ErasedStorage,
    verb: &str,
) -> Result<Response, Status> {
    let context = RequestContext::new(call, None);
    match verb {
        "get" => show(call, storage.get_boxed(&context).await?, 200),
        "list" => list(call, storage.list_boxed(&context).await?),
        "watch" => watch_storage(call, storage.watch_boxed(&context).await?),
        "create" => {
            let checks = admission::Checks::new(call);
            let created = async {
                let object = decode_and_admit(call, &checks, None).await?;
                Ok(storage.create_boxed(&context, object).await?)
            };
            show(call, checks.settle(created.await).await?, 201)
        }
        "update" => {
            let old = storage.get_boxed(&context).await?;
            let (context, checks) = (
                RequestContext::new(call, Some(&old)),
                admission::Checks::new(call),
            );
            let updated = async {
                let object = decode_and_admit(call, &checks, Some(&old)).await?;
                Ok(storage.update_boxed(&context, object).await?)
            };
            show(call, checks.settle(updated.await).await?, 200)
        }
        "delete" => {
            let old = storage.get_boxed(&context).await?;
            let (context, checks) = (
                RequestContext::new(call, Some(&old)),
                admission::Checks::new(call),
            );
            let deleted = async {
                checks.check(None, Some(&old)).await?;
                Ok(storage.delete_boxed(&context).await?)
            };
            let deleted = checks.settle(deleted.await).await?;
            Ok(call.deleted(deleted["metadata"]["uid"].str(), 200))
        }
        _ => Err(Status::no_such_method()),
    }
}

/// Decodes, admits and validates the object of a request.
async fn decode_and_admit(
    call: &ResourceCall<'_>,
    checks: &admission::Checks<'_>,
    old: Option<&Value>,
) -> Result<Value, Status> {
    let ResourceCall {
        request,
        path,
        resource,
        ..
    } = call;
    let name = if old.is_some() {
        "UpdateOptions"
    } else {
        "CreateOptions"
    };
    let options = options::write_options(request, name)?;
    let mut object = decode::decode_body(call, resource.kind(), options.strictness)?;
    match old {
        Some(_) => check_name(call, &mut object)?,
        None => {
            set_namespace(path, object.entry("metadata"))?;
            wipe_system_metadata(object.entry("metadata"));
        }
    }
    checks.admit(old, &mut object).await?;
    let mut object = object.into_value();
    validate(call, &mut object, old)?;
    checks.check(Some(&object), old).await?;
    Ok(object)
}

fn validate(call: &ResourceCall, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let (user, now) = (&call.request.user, call.server.registry.timestamp());
    let context = user.context(
        if old.is_some() {
            Action::Update
        } else {
            Action::Create
        },
        &now,
    );
    let (kind, mut violations) = (call.resource.kind(), Violations::default());
    kind.hooks.prepare(object, old, &context);
    kind.hooks.validate(object, old, &context, &mut violations);
    if violations.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &kind.gvk,
        object["metadata"]["name"].str(),
        &violations,
    ))
}

/// Turns a value into an object of the kind.
fn object(kind: &Kind, mut value: Value) -> Object {
    value.set("kind", &kind.gvk.kind);
    value.set("apiVersion", kind.gvk.api_version());
    schema::canonical(&kind.root, &mut value);
    Object::unstored(json::to_string(&value).into())
}

fn show(call: &ResourceCall, value: Value, code: u16) -> Result<Response, Status> {
    call.object(&object(call.resource.kind(), value), code)
}

fn list(call: &ResourceCall, values: Vec<Value>) -> Result<Response, Status> {
    let kind = call.resource.kind();
    let options = options::list_options(kind, &call.path.namespace, &call.request.query)?;
    let chosen = values
        .into_iter()
        .filter(|value| selects(&options.selection, value));
    let items = chosen.map(|value| object(kind, value)).collect();
    let (version, token) = (Revision(0), String::new());
    let list = ObjectList {
        items,
        version,
        token,
        remaining: None,
        superseded: None,
    };
    call.check_include()?;
    call.check_listed(true)?;
    Ok(call.renderer().list(&list))
}

fn selects(selection: &Selection, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let here = selection.namespace.is_empty() || metadata["namespace"].str() == selection.namespace;
    here && selection
        .labels
        .matches(|label| metadata["labels"][label].as_str())
        && selection.fields.matches(|field| value.at(field).str())
}

/// Forwards the selected events.
fn watch_storage(
    call: &ResourceCall,
    mut changes: mpsc::Receiver<(mizzen_registry::WatchChange, Value)>,
) -> Result<Response, Status> {
    let kind = call.resource.kind().clone();
    let selection = ListQuery::parse(
        &kind,
        &call.path.namespace,
        &call.path.name,
        &call.request.query,
        true,
    )?
    .selection;
    let (sender, events) = mpsc::channel(MAX_BUFFERED_EVENTS);
    tokio::spawn(async move {
        while let Some((change, value)) = changes.recv().await {
            if selects(&selection, &value)
                && sender
                    .send(WatchEvent::Object(change, object(&kind, value)))
                    .await
                    .is_err()
            {
                return;
            }
        }
    });
    watch::stream_storage_events(call, events)
}

/// The object of a subresource.
async fn read_object(call: &ResourceCall<'_>) -> Result<Value, Status> {
    let ResourceCall {
        server, resource, ..
    } = call;
    Ok(match server.extensions.storage(call) {
        Some(storage) => storage.get_boxed(&RequestContext::new(call, None)).await?,
        None => {
            let object = server.registry.read(resource, &call.key(), "").await?;
            object.value()
        }
    })
}

/// Admits a CONNECT and upgrades the connection. Kubernetes: in this order (apiserver/pkg/endpoints/handlers/rest.go).
async fn serve_connect(
    call: &ResourceCall<'_>,
    handler: &dyn ErasedConnectHandler,
) -> Result<Response, Status> {
    if call.request.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    admission::check_connect_without_options(call).await?;
    let object = read_object(call).await?;
    extend::connect(call, handler, &RequestContext::new(call, Some(&object))).await
}

async fn serve_subresource(
    call: &ResourceCall<'_>,
    handler: &dyn ErasedSubresourceHandler,
) -> Result<Response, Status> {
    let old = read_object(call).await?;
    let context = RequestContext::new(call, Some(&old));
    let mut value = handler.answer_boxed(&context, body(call)?).await?;
    let kind = call.resource.kind();
    let stated = kind
        .subresource(&call.path.subresource)
        .and_then(|subresource| subresource.kind.as_ref());
    let gvk = stated.unwrap_or(&kind.gvk);
    value.set("kind", &gvk.kind);
    value.set("apiVersion", gvk.api_version());
    let code = if context.verb == "create" { 201 } else { 200 };
    Ok(response::value(
        gvk,
        None,
        &value,
        call.accept.whole(),
        code,
    ))
}

fn body(call: &ResourceCall) -> Result<Value, Status> {
    let body = &call.request.body;
    if body.is_empty() {
        return Ok(Value::Null);
    }
    match decode::body_type(call.request)? {
        BodyType::Json => json::parse(body).map_err(|error| Status::bad_request(error.to_string())),
        BodyType::Yaml => yaml::read(body)
            .map(|read| read.value)
            .map_err(|error| Status::bad_request(error.to_string())),
        BodyType::Protobuf => Err(decode::unsupported("application/json, application/yaml")),
    }
}
