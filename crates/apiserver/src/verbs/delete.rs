//! `DELETE` of one object or of a collection.

use mizzen_object::{Details, Status};
use mizzen_registry::{DeleteOptions, Deleted};

use super::Call;
use crate::answer::{self, Answer};
use crate::{admission, delete_options, options};

pub(crate) async fn delete(call: &Call<'_>) -> Result<Answer, Status> {
    let Call {
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
    show(call, &deleted, code(&deleted, &options))
}

/// Kubernetes: whether or not there is anything to delete (registry/batch/job/storage/storage.go).
fn warn_of_orphans(call: &Call, options: &DeleteOptions) {
    let (kind, said) = (
        call.resource.kind(),
        options.propagation.is_some() || options.orphan_dependents.is_some(),
    );
    if kind.rules.warns_of_orphans && !said {
        call.notes.warn(format!(
            "child pods are preserved by default when {} are deleted; set propagationPolicy=Background to remove them or \
             set propagationPolicy=Orphan to suppress this warning",
            kind.plural
        ));
    }
}

/// Kubernetes: 202 only for those who asked in the old way that dependents go too.
fn code(deleted: &Deleted, options: &DeleteOptions) -> u16 {
    if !deleted.gone && options.orphan_dependents == Some(false) {
        202
    } else {
        200
    }
}

fn show(call: &Call, deleted: &Deleted, code: u16) -> Result<Answer, Status> {
    let kind = call.resource.kind();
    if !deleted.gone || kind.rules.delete_answers_object {
        return call.object(&deleted.object, code);
    }
    let details = Details {
        name: call.path.name.clone(),
        group: kind.gvk.group.clone(),
        kind: kind.plural.clone(),
        uid: deleted.object.value()["metadata"]["uid"].str().into(),
        causes: Vec::new(),
    };
    let status = Status::success(details);
    let types = &call.server.types;
    Ok(answer::status_value(types, &status, call.accept, code))
}

pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Answer, Status> {
    let Call {
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
