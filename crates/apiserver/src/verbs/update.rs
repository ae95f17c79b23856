//! `PUT` of one object.

use mizzen_object::{Action, Status};
use mizzen_registry::{Change, Future, Update, Updated};
use mizzen_value::Value;

use super::{Call, check_name};
use crate::admission::{self, Checks};
use crate::answer::Answer;
use crate::field_manager::RequestFieldManager;
use crate::{decode, options};

pub(crate) async fn update(call: &Call<'_>, action: Action) -> Result<Answer, Status> {
    let options = options::write_options(call.request, "UpdateOptions")?;
    let mut object = decode::decode_body(call, call.resource.kind(), options.strictness)?;
    check_name(call.path, &mut object)?;
    admission::dedupe_owners(call, &mut object, admission::Dedupe::AsSent);
    let updated = replace(call, action, object, options.dry_run).await?;
    call.object(&updated.object, if updated.created { 201 } else { 200 })
}

/// Replaces the object of the path, or its status.
pub(super) async fn replace(
    call: &Call<'_>,
    action: Action,
    object: Value,
    dry_run: bool,
) -> Result<Updated, Status> {
    let Call {
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
    call: &'a Call<'a>,
    object: Value,
    checks: &'a Checks<'a>,
}

impl Change for Replace<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        Box::pin(self.replaced(current))
    }
}

impl Replace<'_> {
    async fn replaced(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let mut object = self.object.clone();
        RequestFieldManager::new(self.call)
            .update_any(current, &mut object)
            .await;
        self.checks.admit(current, &mut object).await?;
        Ok(object)
    }
}
