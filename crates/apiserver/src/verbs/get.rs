//! `GET` of one object.

use mizzen_object::Status;

use super::Call;
use crate::answer::Answer;

pub(crate) fn get(call: &Call) -> Result<Answer, Status> {
    let version = call.request.query.text("resourceVersion");
    let object = call.server.registry.get(call.resource, &call.key(), version)?;
    call.object(&object, 200)
}
