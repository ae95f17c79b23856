//! Where the load lives, and how it goes away without a trace.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::client::{Call, CallError};
use super::objects::{Collection, Kind, count_json};
use super::session::Session;
use super::{account, definition};

/// Objects deleted by one request: few enough to be done long before upstream's 60 s are over.
const SWEEP: u64 = 2000;
/// How long a namespace controller, if there is one, has to show itself.
const NAMESPACE_CONTROLLER: Duration = Duration::from_secs(3);

/// Makes the namespace, and in it the service account that pods need where its controller does not run.
pub(crate) async fn create(session: &Session) -> Result<(), CallError> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": session.namespace, "labels": {"app.kubernetes.io/managed-by": "mizzen-bench"}},
    });
    session.has_namespace.store(true, Ordering::Relaxed);
    if let Err(error) = session
        .call(&Call::post("/api/v1/namespaces", namespace.to_string()))
        .await
    {
        // Without an answer it may have been made all the same.
        session
            .has_namespace
            .store(error.status().is_none(), Ordering::Relaxed);
        return Err(error);
    }

    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", session.namespace);
    unless(
        StatusCode::CONFLICT,
        session.call(&Call::post(path, account.to_string())).await,
    )
}

/// Deletes every object of a collection, some at a time.
pub(crate) async fn empty(session: &Session, collection: &Collection) -> Result<(), CallError> {
    let line = session
        .progress
        .line(&format!("clean up {}", collection.kind.name()), None);
    let sweep = Call::delete(format!(
        "{}?limit={SWEEP}&propagationPolicy=Background",
        collection.path
    ));
    loop {
        let n_deleted = count_json(&session.call(&sweep).await?);
        line.ticks.fetch_add(n_deleted, Ordering::Relaxed);
        if n_deleted == 0 {
            return Ok(());
        }
    }
}

/// Removes the namespace, if it was made, and all that is in it.
///
/// It is marked for deletion first: then a request still on its way cannot create anything more. Where no namespace
/// controller runs (a bare kube-apiserver), nobody else would take the finalizer off, so we do.
pub(crate) async fn remove(session: &Session) -> Result<(), CallError> {
    if !session.has_namespace.load(Ordering::Relaxed) {
        return Ok(());
    }
    let path = format!("/api/v1/namespaces/{}", session.namespace);
    match session.call(&Call::delete(&path)).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return Ok(()),
        answer => answer?,
    };
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Widgets) {
        empty(session, &Collection::new(kind, &session.namespace)).await?;
    }
    unless(
        StatusCode::NOT_FOUND,
        session.call(&definition::removal(&session.namespace)).await,
    )?;
    session
        .call(&Call::delete(format!("{path}/serviceaccounts")))
        .await?;
    if session.options.as_service_account {
        for removal in account::removals(&session.namespace) {
            session.call(&removal).await?;
        }
    }

    tokio::time::sleep(NAMESPACE_CONTROLLER).await;
    let namespace = match session.call(&Call::get(&path)).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return Ok(()),
        answer => answer?,
    };
    let mut namespace: Value = serde_json::from_slice(&namespace).unwrap_or_default();
    let controller_at_work = namespace["status"]["conditions"].is_array();
    if controller_at_work {
        return Ok(());
    }
    namespace["spec"]["finalizers"] = json!([]);
    let finalize = Call::put(format!("{path}/finalize"), namespace.to_string());
    unless(StatusCode::NOT_FOUND, session.call(&finalize).await)
}

/// Success, or the one refusal that is as good.
fn unless<T>(harmless: StatusCode, answer: Result<T, CallError>) -> Result<(), CallError> {
    match answer {
        Err(error) if error.status() != Some(harmless) => Err(error),
        _ => Ok(()),
    }
}
