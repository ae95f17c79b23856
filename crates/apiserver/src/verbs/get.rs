//! `GET` of one object.

use mizzen_object::Status;

use super::ResourceCall;
use crate::response::Response;

pub(crate) async fn get(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let version = call.request.query.text("resourceVersion");
    let object = call
        .server
        .registry
        .read(call.resource, &call.key(), version)
        .await?;
    call.object(&object, 200)
}
