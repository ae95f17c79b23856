//! Validation by the hooks of a kind, without blocking other requests.

use std::panic;

use mizzen_object::{HookContext, User, Violations};
use mizzen_value::Value;
use tokio::runtime::Handle;
use tokio::task;

use crate::Resource;

/// The most work that is done on a thread of the runtime, in steps as [`mizzen_object::Hooks::validation_cost`] counts
/// them: some tens of milliseconds at worst.
const MAX_INLINE_COST: u64 = 10_000_000;

/// Runs the validation of a kind, on a blocking thread if it is expensive.
pub(crate) async fn validate(
    resource: &Resource,
    new: &Value,
    old: Option<&Value>,
    context: &HookContext<'_>,
    mut violations: Violations,
) -> Violations {
    let hooks = &resource.kind().hooks;
    if hooks.validation_cost(new) <= MAX_INLINE_COST || Handle::try_current().is_err() {
        hooks.validate(new, old, context, &mut violations);
        return violations;
    }
    let (hooks, new, old) = (hooks.clone(), new.clone(), old.cloned());
    let (action, now) = (context.action, context.now.to_owned());
    let user = User {
        name: context.user.into(),
        groups: context.groups.to_vec(),
        uid: context.uid.into(),
        extra: context.extra.clone(),
    };
    let run = move || {
        hooks.validate(
            &new,
            old.as_ref(),
            &user.context(action, &now),
            &mut violations,
        );
        violations
    };
    // A panic on the other thread is a panic of this request.
    task::spawn_blocking(run)
        .await
        .unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))
}
