//! The books: what a write has taken from quotas, and that it is given back if the write comes to nothing.
//!
//! Taking is an update of the quota's status that is tried until it lands on the very state that was looked at. It
//! runs in a task of its own, so that a client that goes away cannot leave it half done.
//!
//! Invariant: whatever is in a book that is dropped without being settled is given back, unless the object turns
//! out to be stored.

use parking_lot::Mutex;
use std::sync::Arc;

use http::Method;
use mizzen_kinds::amounts::{Amounts, amounts};
use mizzen_object::{Action, Status};
use mizzen_registry::{Change, Future, Key, Resource, Update, Warnings};
use mizzen_value::Value;

use super::{Need, Request, set_used};
use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::request::{self, ResourcePath};
use mizzen_apiserver::server::Inner;
use mizzen_apiserver::verbs::Call;

/// What one write has taken. Costs nothing until it takes something.
#[derive(Default)]
pub(crate) struct Charges(Mutex<Option<Arc<Book>>>);

impl Charges {
    /// Takes what a write needs, from all quotas or from none.
    pub(super) async fn take(
        &self,
        request: &Request<'_>,
        needed: Vec<Need>,
    ) -> Result<(), Status> {
        if needed.is_empty() {
            return Ok(());
        }
        let book = Arc::new(Book::new(request));
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

    /// The write is stored: what it took stays taken.
    pub(super) fn keep(&self) {
        if let Some(book) = hold(&self.0).take() {
            hold(&book.taken).clear();
        }
    }

    /// The write is refused, or is about to be tried again: it takes nothing.
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

/// What was taken for one object.
struct Book {
    server: Arc<Inner>,
    namespace: String,
    resource: Resource,
    /// The object as it would be stored.
    object: Value,
    is_new: bool,
    taken: Mutex<Vec<Need>>,
}

/// A quota as it is, and what does not fit into it any more.
type Full = (Value, Amounts);

impl Book {
    fn new(request: &Request) -> Book {
        let call = request.attributes.call;
        Book {
            server: call.server.clone(),
            namespace: request.attributes.namespace().into(),
            resource: call.resource.clone(),
            object: request.object.clone(),
            is_new: request.attributes.is_create(),
            taken: Mutex::default(),
        }
    }

    /// Takes what is needed from one quota, or says that it is full by now.
    async fn take(self: Arc<Book>, need: Need) -> Result<Option<Full>, Status> {
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

impl Drop for Book {
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
            if !is_stored(&server, &resource, &object, is_new).await {
                give_back(&server, &namespace, taken).await;
            }
        });
    }
}

/// Whether an object whose writer went away came to be stored all the same. A new one is known by its uid.
async fn is_stored(server: &Inner, resource: &Resource, object: &Value, is_new: bool) -> bool {
    let metadata = &object["metadata"];
    let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
    let stored = server
        .registry
        .get_settled(resource, &key)
        .await
        .map(|stored| stored.value());
    stored.is_some_and(|stored| {
        stored["metadata"]["uid"] == metadata["uid"] && (is_new || stored["spec"] == object["spec"])
    })
}

async fn give_back(server: &Arc<Inner>, namespace: &str, taken: Vec<Need>) {
    for need in taken {
        // A quota that is gone has nothing to get back, and one that cannot be written is counted again by its
        // controller.
        let _ = change(server, namespace, &need, true).await;
    }
}

/// Writes into a quota's status what is taken or given back. It is the server that asks here, not the user.
async fn change(
    server: &Arc<Inner>,
    namespace: &str,
    need: &Need,
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
    let call = Call::of_server(server, &request, &path, &quotas, &notes);
    let key = call.key();
    let mut spend = Spend {
        delta: &need.delta,
        give_back,
        owning: RequestFieldManager::new(&call),
        full: None,
    };
    let update = Update {
        action: Action::Status,
        user: request.user.clone(),
        ..Update::new(&quotas, &key, &mut spend)
    };
    let outcome = server.registry.update(update).await;
    match (spend.full, outcome) {
        (Some(quota), _) => Ok(Some((quota, need.delta.clone()))),
        (None, Err(status)) if status.reason == "NotFound" => Ok(None),
        (None, outcome) => outcome.map(|_| None),
    }
}

struct Spend<'a> {
    delta: &'a Amounts,
    give_back: bool,
    owning: RequestFieldManager<'a>,
    /// The quota, if there is no room left in it.
    full: Option<Value>,
}

impl Change for Spend<'_> {
    fn apply<'a>(&'a mut self, current: Option<&'a Value>) -> Future<'a, Result<Value, Status>> {
        let outcome = self.spent(current.expect("a quota that is not there is not updated"));
        Box::pin(async { outcome })
    }
}

impl Spend<'_> {
    fn spent(&mut self, current: &Value) -> Result<Value, Status> {
        let mut quota = current.clone();
        set_used(&mut quota, self.delta, self.give_back);
        if !self.give_back && is_over(&quota, self.delta) {
            self.full = Some(current.clone());
            return Err(Status::internal("the quota is full"));
        }
        self.owning.update(Some(current), &mut quota);
        Ok(quota)
    }
}

fn is_over(quota: &Value, delta: &Amounts) -> bool {
    let (hard, used) = (
        amounts(&quota["status"]["hard"]),
        amounts(&quota["status"]["used"]),
    );
    delta.keys().any(|name| {
        hard.get(name)
            .zip(used.get(name))
            .is_some_and(|(hard, used)| used > hard)
    })
}
