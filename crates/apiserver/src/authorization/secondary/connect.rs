//! Streams to a pod: a WebSocket is opened with GET, whose verb is `get`, but is as powerful as
//! POST.

use mizzen_authorization::Attributes;
use mizzen_object::Status;

use crate::verbs::ResourceCall;

/// Authorizes `create` on the subresource, whatever the verb of the request. Kubernetes: core/pod/rest/authorize.go.
pub async fn authorize_connect(call: &ResourceCall<'_>, verb: &str) -> Result<(), Status> {
    if verb == "create" {
        return Ok(());
    }
    let attributes = Attributes {
        verb: "create",
        ..call.request.attributes()
    };
    let decision = call
        .server
        .authorization
        .authorizers
        .authorize(&attributes)
        .await;
    let reason = decision.reason();
    match (reason.problem(), decision.is_allowed()) {
        (Some(problem), _) => Err(Status::unknown(problem.to_owned())),
        (None, true) => Ok(()),
        (None, false) => {
            let resource = call.resource.kind().resource();
            Err(Status::forbidden(
                &resource,
                &call.path.name,
                &reason.to_string(),
            ))
        }
    }
}
