//! Hooks around a write: what is allocated for it is given back if it is not stored.

use std::sync::Arc;

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;
use parking_lot::Mutex;

use super::{Error, RequestContext};
use crate::admission::{WriteOutcome, WriteStrategy, WriteTransaction};
use crate::verbs::ResourceCall;

/// Begins and finishes creates and updates. Kubernetes: `BeginCreate`, `BeginUpdate` and their `FinishFunc`
/// (registry/generic/registry/store.go).
///
/// ```
/// use std::sync::atomic::{AtomicU16, Ordering};
/// use mizzen_apiserver::extend::{Error, RequestContext, WriteHook};
/// use mizzen_object::GroupResource;
/// use mizzen_value::Value;
///
/// const THINGS: GroupResource = GroupResource::new("example.com", "things");
///
/// /// Counts the things that exist.
/// struct Count(AtomicU16);
///
/// impl WriteHook for Count {
///     type Allocation = ();
///
///     async fn begin(&self, context: &RequestContext<'_>, _: &mut Value) -> Result<Option<()>, Error> {
///         if !context.is(&THINGS) || context.old.is_some() {
///             return Ok(None);
///         }
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Ok(Some(()))
///     }
///
///     async fn finish(&self, (): (), is_stored: bool) {
///         if !is_stored {
///             self.0.fetch_sub(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait WriteHook: Send + Sync + 'static {
    /// What is allocated for one write.
    type Allocation: Send + 'static;

    /// Allocates for a write, after everything that mutates the object and before its validation. May set fields of the
    /// object. None if the write needs nothing. An update that lost a race begins again, after it was finished.
    fn begin(
        &self,
        context: &RequestContext<'_>,
        object: &mut Value,
    ) -> impl Future<Output = Result<Option<Self::Allocation>, Error>> + Send;

    /// Keeps what was allocated if the object was stored, or may be because the store did not say, and gives it back
    /// otherwise: if validation, admission or the commit failed, if the client went away, or for a dry run. Called
    /// exactly once for each allocation.
    fn finish(
        &self,
        allocation: Self::Allocation,
        is_stored: bool,
    ) -> impl Future<Output = ()> + Send;
}

/// Finishes one allocation.
type FinishFn = Box<dyn FnOnce(bool) -> BoxFuture<'static, ()> + Send>;

/// A [`WriteHook`] of any type.
trait ErasedWriteHook: Send + Sync {
    fn begin_boxed<'a>(
        self: Arc<Self>,
        context: &'a RequestContext<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Option<FinishFn>, Error>>;
}

impl<T: WriteHook> ErasedWriteHook for T {
    fn begin_boxed<'a>(
        self: Arc<Self>,
        context: &'a RequestContext<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Option<FinishFn>, Error>> {
        Box::pin(async move {
            let allocation = self.begin(context, object).await?;
            Ok(allocation.map(|allocation| -> FinishFn {
                Box::new(move |is_stored| {
                    Box::pin(async move { self.finish(allocation, is_stored).await })
                })
            }))
        })
    }
}

/// Runs a hook as a write strategy.
pub(super) struct WriteHookStrategy(Arc<dyn ErasedWriteHook>);

impl WriteHookStrategy {
    pub(super) fn new(hook: impl WriteHook) -> WriteHookStrategy {
        WriteHookStrategy(Arc::new(hook))
    }
}

impl WriteStrategy for WriteHookStrategy {
    fn begin(&self, call: &ResourceCall) -> Option<Box<dyn WriteTransaction>> {
        Some(Box::new(WriteHookTransaction {
            hook: self.0.clone(),
            is_dry_run: call.request.query.get("dryRun").is_some(),
            pending: Mutex::new(None),
        }))
    }
}

/// The allocation of one request, until it is finished.
struct WriteHookTransaction {
    hook: Arc<dyn ErasedWriteHook>,
    is_dry_run: bool,
    pending: Mutex<Option<FinishFn>>,
}

impl WriteTransaction for WriteHookTransaction {
    fn allocate<'a>(
        &'a self,
        call: &'a ResourceCall<'a>,
        old: Option<&'a Value>,
        object: &'a mut CanonicalObject,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let lost = self.pending.lock().take();
            if let Some(finish) = lost {
                finish(false).await;
            }
            let context = RequestContext::new(call, old);
            let begun = self.hook.clone().begin_boxed(&context, object).await?;
            *self.pending.lock() = begun;
            Ok(())
        })
    }

    fn settle<'a>(
        &'a self,
        _call: &'a ResourceCall<'a>,
        outcome: WriteOutcome,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let pending = self.pending.lock().take();
            if let Some(finish) = pending {
                finish(outcome.may_be_stored() && !self.is_dry_run).await;
            }
        })
    }
}

/// The client went away, or the request panicked.
impl Drop for WriteHookTransaction {
    fn drop(&mut self) {
        let pending = self.pending.get_mut().take();
        if let (Some(finish), Ok(runtime)) = (pending, tokio::runtime::Handle::try_current()) {
            runtime.spawn(finish(false));
        }
    }
}
