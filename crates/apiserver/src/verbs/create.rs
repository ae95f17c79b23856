//! `POST` to a collection: decode, admit, store, answer.

use mizzen_object::{Status, Value};
use mizzen_registry::CreateOptions;

use super::{Call, set_namespace};
use crate::answer::{Answer, warn};
use crate::chain::plain_accept;
use crate::ownership::Owning;
use crate::{admission, intake, options};

pub(crate) async fn create(call: &Call<'_>) -> Result<Answer, Status> {
    let Call { server, request, path, resource, .. } = call;
    let options = options::write_options(request, "CreateOptions")?;
    let mut intake = intake::object(&server.catalog, resource.kind(), request, options.strictness)?;
    set_namespace(path, intake.value.entry("metadata"))?;
    wipe(intake.value.entry("metadata"));
    admission::dedupe_owners(call, &mut intake.value, admission::Dedupe::AsSent);
    Owning::new(call).update_any(None, &mut intake.value).await;
    let mut claim = server.claims.claim();
    admission::admit(admission::Write { call, old: None, claim: &mut claim }, &mut intake.value).await?;

    let create =
        CreateOptions { user: request.user.who(), dry_run: options.dry_run, ..CreateOptions::default() };
    let draft = intake.value;
    let checks = admission::Checks::new(call);
    let created = server
        .registry
        .create(resource, &path.namespace, draft, &create, &checks, &mut intake.warnings)
        .await;
    let created = checks.settle(created).await;
    finish(call, created.and_then(|object| call.object(&object, 201)), &intake.warnings)
}

/// Takes away what only the server says of a new object.
pub(crate) fn wipe(metadata: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "uid", "creationTimestamp"] {
        metadata.remove(field);
    }
}

/// Warnings reach the client whether or not it worked.
pub(crate) fn finish(
    call: &Call,
    outcome: Result<Answer, Status>,
    warnings: &[String],
) -> Result<Answer, Status> {
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(status) if warnings.is_empty() => return Err(status),
        Err(status) => crate::answer::status(&call.server.types, &status, plain_accept(call.request)),
    };
    warn(&mut answer, warnings);
    Ok(answer)
}
