//! `GET` of one object.

use mizzen_object::Status;

use super::Call;
use crate::answer::Answer;

pub(crate) async fn get(call: &Call<'_>) -> Result<Answer, Status> {
    let version = call.request.query.text("resourceVersion");
    let object = call
        .server
        .registry
        .read(call.resource, &call.key(), version)
        .await?;
    call.object(&object, 200)
}
