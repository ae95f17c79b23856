//! `DELETE` of one object or of a collection.

use mizzen_object::Status;
use mizzen_registry::DeleteOptions;

use super::ResourceCall;
use crate::response::Response;
use crate::{admission, delete_options, options};

pub(crate) async fn delete(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        resource,
        ..
    } = call;
    let options = delete_options::read(server, request)?;
    admission::check_delete(call)?;
    warn_of_orphans(call, &options);
    let checks = admission::Checks::new(call);
    let deleted = server
        .registry
        .delete(resource, &call.key(), &options, &checks)
        .await;
    let deleted = checks.settle(deleted).await?;
    // Kubernetes: 202 only for the legacy `orphanDependents=false`.
    let code = match !deleted.gone && options.orphan_dependents == Some(false) {
        true => 202,
        false => 200,
    };
    let kind = call.resource.kind();
    if !deleted.gone || kind.rules.delete_answers_object {
        return call.object(&deleted.object, code);
    }
    Ok(call.deleted(&deleted.uid, code))
}

/// Kubernetes: even if there is nothing to delete (registry/batch/job/storage/storage.go).
fn warn_of_orphans(call: &ResourceCall, options: &DeleteOptions) {
    let kind = call.resource.kind();
    let is_explicit = options.propagation.is_some() || options.orphan_dependents.is_some();
    if kind.rules.warns_of_orphans && !is_explicit {
        call.notes.warn(format!(
            "child pods are preserved by default when {} are deleted; set propagationPolicy=Background to remove them or \
             set propagationPolicy=Orphan to suppress this warning",
            kind.plural
        ));
    }
}

pub(crate) async fn delete_collection(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        path,
        resource,
        ..
    } = call;
    resource.check_namespace(&path.namespace)?;
    let list = options::list_options(resource.kind(), &path.namespace, &request.query)?;
    let options = delete_options::read(server, request)?;
    warn_of_orphans(call, &options);
    let checks = admission::Checks::new(call);
    let deleted = server
        .registry
        .delete_collection(resource, &list, &options, &checks)
        .await;
    let deleted = checks.settle(deleted).await?;
    call.check_listed(true)?;
    Ok(call.renderer().list(&deleted))
}
