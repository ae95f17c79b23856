//! `PUT` of one object.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Action, Status};
use mizzen_registry::{BoxFuture, Update, UpdateFn, Updated};
use mizzen_value::Value;

use super::{ResourceCall, check_name};
use crate::admission::{self, Checks};
use crate::field_manager::RequestFieldManager;
use crate::response::Response;
use crate::{decode, options};

pub(crate) async fn update(call: &ResourceCall<'_>, action: Action) -> Result<Response, Status> {
    let options = options::write_options(call.request, "UpdateOptions")?;
    let mut object = decode::decode_body(call, call.resource.kind(), options.strictness)?;
    check_name(call, &mut object)?;
    admission::dedupe_owners(call, &mut object, admission::Dedupe::AsSent);
    let updated = replace(call, action, object, options.dry_run).await?;
    call.object(&updated.object, if updated.created { 201 } else { 200 })
}

/// Replaces the object of the path, or its status.
pub(super) async fn replace(
    call: &ResourceCall<'_>,
    action: Action,
    object: CanonicalObject,
    dry_run: bool,
) -> Result<Updated, Status> {
    let ResourceCall {
        server,
        request,
        resource,
        ..
    } = call;
    let (key, checks) = (call.key(), Checks::new(call));
    let mut change = Replace {
        call,
        object,
        checks: &checks,
    };
    let update = Update {
        action,
        user: request.user.clone(),
        dry_run,
        create: resource.kind().rules.create_on_update,
        uid_precondition: true,
        gate: &checks,
        warnings: Some(call.notes),
        ..Update::new(resource, &key, &mut change)
    };
    let updated = server.registry.update(update).await;
    checks.settle(updated).await
}

/// Replaces the current object.
struct Replace<'a> {
    call: &'a ResourceCall<'a>,
    object: CanonicalObject,
    checks: &'a Checks<'a>,
}

impl UpdateFn for Replace<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        Box::pin(self.replaced(current))
    }
}

impl Replace<'_> {
    async fn replaced(&mut self, current: Option<&Value>) -> Result<CanonicalObject, Status> {
        let mut object = self.object.clone();
        RequestFieldManager::new(self.call)
            .update_any(current, &mut object)
            .await;
        self.checks.admit(current, &mut object).await?;
        Ok(object)
    }
}
