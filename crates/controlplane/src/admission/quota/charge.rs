//! Quota charges: what a write has used of quotas, and its return if the write fails.
//!
//! A charge is an update of the quota's status, retried until it applies to the state that was checked. It runs in a task of
//! its own, so that a client that disconnects cannot leave it half done.
//!
//! Invariant: charges that are dropped without being settled are returned, unless the object has been stored, or may
//! be yet: in a store that other servers write to, too, a write in flight may be committed after any check. Such a
//! charge stays until the quota controller recounts, as each one does upstream.

use parking_lot::Mutex;
use std::sync::Arc;

use http::Method;
use mizzen_component_helpers::amounts::{Amounts, amounts};
use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Action, Status};
use mizzen_registry::{BoxFuture, Key, Resource, Update, UpdateFn, Warnings};
use mizzen_value::Value;

use super::{QuotaCharge, QuotaRequest, set_used};
use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::request::{self, ResourcePath};
use mizzen_apiserver::server::ServerParts;
use mizzen_apiserver::verbs::ResourceCall;

/// The charges of one write. Allocates nothing until something is charged.
#[derive(Default)]
pub(crate) struct Charges(Mutex<Option<Arc<WriteCharges>>>);

impl Charges {
    /// Charges a write to all quotas or to none.
    pub(super) async fn take(
        &self,
        request: &QuotaRequest<'_>,
        needed: Vec<QuotaCharge>,
    ) -> Result<(), Status> {
        if needed.is_empty() {
            return Ok(());
        }
        let book = Arc::new(WriteCharges::new(request));
        let mut outcome = Ok(());
        for need in needed {
            outcome = match book.clone().take(need).await {
                Ok(None) => continue,
                Ok(Some((quota, delta))) => request.check_fits(&quota, &delta),
                Err(status) => Err(status),
            };
            break;
        }
        match outcome {
            Ok(()) => *hold(&self.0) = Some(book),
            Err(_) => book.give_back().await,
        }
        outcome
    }

    /// The write is stored, or may be: its charges stay.
    pub(super) fn keep(&self) {
        if let Some(book) = hold(&self.0).take() {
            hold(&book.taken).clear();
        }
    }

    /// The write failed or is retried: its charges are returned.
    pub(crate) async fn give_back(&self) {
        let book = hold(&self.0).take();
        if let Some(book) = book {
            book.give_back().await;
        }
    }
}

fn hold<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}

/// The charges of one object.
struct WriteCharges {
    server: Arc<ServerParts>,
    namespace: String,
    resource: Resource,
    /// The object as it would be stored.
    object: Value,
    is_new: bool,
    taken: Mutex<Vec<QuotaCharge>>,
}

/// A quota, and the amounts that exceed it.
type Full = (Value, Amounts);

impl WriteCharges {
    fn new(request: &QuotaRequest) -> WriteCharges {
        let call = request.attributes.call;
        WriteCharges {
            server: call.server.clone(),
            namespace: request.attributes.namespace().into(),
            resource: call.resource.clone(),
            object: request.object.clone(),
            is_new: request.attributes.is_create(),
            taken: Mutex::default(),
        }
    }

    /// Charges one quota; returns the quota if it is exceeded by now.
    async fn take(self: Arc<WriteCharges>, need: QuotaCharge) -> Result<Option<Full>, Status> {
        let task = tokio::spawn(async move {
            let outcome = change(&self.server, &self.namespace, &need, false).await;
            if let Ok(None) = outcome {
                hold(&self.taken).push(need);
            }
            outcome
        });
        task.await
            .unwrap_or_else(|_| Err(Status::internal("resource quota evaluation failed")))
    }

    async fn give_back(&self) {
        let taken = std::mem::take(&mut *hold(&self.taken));
        give_back(&self.server, &self.namespace, taken).await;
    }
}

impl Drop for WriteCharges {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut *hold(&self.taken));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if taken.is_empty() {
            return;
        }
        let (server, namespace) = (self.server.clone(), self.namespace.clone());
        let (resource, is_new) = (self.resource.clone(), self.is_new);
        let object = std::mem::take(&mut self.object);
        runtime.spawn(async move {
            if let Ok(false) = is_stored(&server, &resource, &object, is_new).await {
                give_back(&server, &namespace, taken).await;
            }
        });
    }
}

/// Whether the object was stored although its client disconnected; an error if that cannot be known. A new one is
/// identified by its uid.
async fn is_stored(
    server: &ServerParts,
    resource: &Resource,
    object: &Value,
    is_new: bool,
) -> Result<bool, Status> {
    let metadata = &object["metadata"];
    let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
    let settled = server.registry.get_settled(resource, &key).await?;
    let stored = settled.map(|stored| stored.value());
    Ok(stored.is_some_and(|stored| {
        stored["metadata"]["uid"] == metadata["uid"] && (is_new || stored["spec"] == object["spec"])
    }))
}

async fn give_back(server: &Arc<ServerParts>, namespace: &str, taken: Vec<QuotaCharge>) {
    for need in taken {
        // A deleted quota needs no return, and one that cannot be written is recounted by its
        // controller.
        let _ = change(server, namespace, &need, true).await;
    }
}

/// Writes a charge or its return to the status of a quota, as the server itself.
async fn change(
    server: &Arc<ServerParts>,
    namespace: &str,
    need: &QuotaCharge,
    give_back: bool,
) -> Result<Option<Full>, Status> {
    let quotas = server
        .catalog
        .get("", "v1", "resourcequotas")
        .ok_or_else(Status::no_such_resource)?;
    let path = ResourcePath {
        version: "v1".into(),
        resource: "resourcequotas".into(),
        namespace: namespace.into(),
        name: need.quota.as_str().into(),
        subresource: "status".into(),
        ..ResourcePath::default()
    };
    let request = request::Request::of_server(Method::PUT, path.clone());
    let notes = Warnings::default();
    let call = ResourceCall::of_server(server, &request, &path, &quotas, &notes);
    let key = call.key();
    let mut charge = ChargeQuota {
        delta: &need.delta,
        give_back,
        fields: RequestFieldManager::new(&call),
        full: None,
    };
    let update = Update {
        action: Action::Status,
        user: request.user.clone(),
        ..Update::new(&quotas, &key, &mut charge)
    };
    let outcome = server.registry.update(update).await;
    match (charge.full, outcome) {
        (Some(quota), _) => Ok(Some((quota, need.delta.clone()))),
        (None, Err(status)) if status.reason == "NotFound" => Ok(None),
        (None, outcome) => outcome.map(|_| None),
    }
}

struct ChargeQuota<'a> {
    delta: &'a Amounts,
    give_back: bool,
    fields: RequestFieldManager<'a>,
    /// The quota, if it is exceeded.
    full: Option<Value>,
}

impl UpdateFn for ChargeQuota<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let outcome = self.charged(current.expect("the update does not create"));
        Box::pin(async { outcome.map(Into::into) })
    }
}

impl ChargeQuota<'_> {
    fn charged(&mut self, current: &Value) -> Result<Value, Status> {
        let mut quota = current.clone();
        set_used(&mut quota, self.delta, self.give_back);
        let [hard, used] = ["hard", "used"].map(|field| amounts(&quota["status"][field]));
        let is_exceeded = |name: &String| {
            let both = hard.get(name).zip(used.get(name));
            both.is_some_and(|(hard, used)| used > hard)
        };
        if !self.give_back && self.delta.keys().any(is_exceeded) {
            self.full = Some(current.clone());
            return Err(Status::internal("the quota is full"));
        }
        self.fields.update(Some(current), &mut quota);
        Ok(quota)
    }
}
