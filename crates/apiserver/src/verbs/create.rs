//! `POST` to a collection: decode, admit, store, answer.

use mizzen_object::Status;
use mizzen_registry::Create;
use mizzen_value::Value;

use super::{ResourceCall, keep_namespace};
use crate::field_manager::RequestFieldManager;
use crate::response::Response;
use crate::{admission, decode, options};

pub(crate) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        path,
        resource,
        ..
    } = call;
    let options = options::write_options(request, "CreateOptions")?;
    let mut draft = decode::decode_body(call, resource.kind(), options.strictness)?;
    keep_namespace(call, &mut draft)?;
    SYSTEM_METADATA
        .iter()
        .for_each(|field| draft.remove_metadata(field));
    admission::dedupe_owners(call, &mut draft, admission::Dedupe::AsSent);
    RequestFieldManager::new(call)
        .update_any(None, &mut draft)
        .await;
    let checks = admission::Checks::new(call);
    if let Err(status) = checks.admit(None, &mut draft).await {
        return checks.settle(Err(status)).await;
    }

    let create = Create {
        user: request.user.clone(),
        dry_run: options.dry_run,
        gate: &checks,
        warnings: Some(call.notes),
        ..Create::new(resource, &path.namespace, draft)
    };
    let created = server.registry.create(create).await;
    call.object(&checks.settle(created).await?, 201)
}

/// Removes the metadata that only the server sets. Upstream: `WipeObjectMetaSystemFields`.
pub fn wipe_system_metadata(metadata: &mut Value) {
    for field in SYSTEM_METADATA {
        metadata.remove(field);
    }
}

const SYSTEM_METADATA: [&str; 5] = [
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "uid",
    "creationTimestamp",
];
