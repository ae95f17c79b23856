//! `GET` of a collection.

use mizzen_object::Status;

use super::ResourceCall;
use crate::response::Response;
use crate::{crd, options};

pub(crate) async fn list(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let options = options::list_options(
        call.resource.kind(),
        &call.path.namespace,
        &call.request.query,
    )?;
    let list = call
        .server
        .registry
        .read_list(call.resource, &options)
        .await?;
    call.check_include()?;
    call.check_listed(true)?;
    if crd::is_crd(call.resource.kind())
        && let Some(hints) = call.server.extensions.hints()
        && let Some(hint) = hints.list_definitions(call.request)
    {
        call.notes.warn(hint);
    }
    let renderer = call.renderer();
    Ok(call
        .request
        .record
        .time_serialization(|| renderer.list(&list)))
}
