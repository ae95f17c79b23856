//! The namespace of a run: its creation and its cleanup.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::client::{ApiCall, ApiCallError};
use super::objects::{Collection, ObjectKind, count_json};
use super::session::Session;
use super::{account, definition};

/// Objects deleted by one request: few enough for kube-apiserver's request timeout of 60 s.
const DELETE_LIMIT: u64 = 2000;
/// How long a namespace controller has to report conditions.
const NAMESPACE_CONTROLLER_TIMEOUT: Duration = Duration::from_secs(3);

/// Creates the namespace, and the default service account in case its controller does not run.
pub(crate) async fn create(session: &Session) -> Result<(), ApiCallError> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": session.namespace, "labels": {"app.kubernetes.io/managed-by": "mizzen-bench"}},
    });
    session.has_namespace.store(true, Ordering::Relaxed);
    if let Err(error) = session
        .call(&ApiCall::post("/api/v1/namespaces", namespace.to_string()))
        .await
    {
        // Without a response the namespace may exist.
        session
            .has_namespace
            .store(error.status().is_none(), Ordering::Relaxed);
        return Err(error);
    }

    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let path = format!("/api/v1/namespaces/{}/serviceaccounts", session.namespace);
    tolerate(
        StatusCode::CONFLICT,
        session
            .call(&ApiCall::post(path, account.to_string()))
            .await,
    )
}

/// Deletes every object of a collection.
pub(crate) async fn delete_objects(
    session: &Session,
    collection: &Collection,
) -> Result<(), ApiCallError> {
    let line = session
        .progress
        .line(&format!("clean up {}", collection.kind.name()), None);
    let sweep = ApiCall::delete(format!(
        "{}?limit={DELETE_LIMIT}&propagationPolicy=Background",
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

/// Deletes the namespace, if it was created, and its content.
///
/// The namespace is deleted first, so that no pending request creates more objects. Where no namespace controller runs
/// (a bare kube-apiserver), the finalizer is removed here.
pub(crate) async fn delete(session: &Session) -> Result<(), ApiCallError> {
    if !session.has_namespace.load(Ordering::Relaxed) {
        return Ok(());
    }
    let path = format!("/api/v1/namespaces/{}", session.namespace);
    match session.call(&ApiCall::delete(&path)).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return Ok(()),
        response => response?,
    };
    for kind in ObjectKind::ALL
        .into_iter()
        .filter(|kind| *kind != ObjectKind::Widgets)
    {
        delete_objects(session, &Collection::new(kind, &session.namespace)).await?;
    }
    tolerate(
        StatusCode::NOT_FOUND,
        session
            .call(&definition::cleanup_call(&session.namespace))
            .await,
    )?;
    session
        .call(&ApiCall::delete(format!("{path}/serviceaccounts")))
        .await?;
    if session.options.as_service_account {
        for call in account::cleanup_calls(&session.namespace) {
            session.call(&call).await?;
        }
    }

    tokio::time::sleep(NAMESPACE_CONTROLLER_TIMEOUT).await;
    let namespace = match session.call(&ApiCall::get(&path)).await {
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return Ok(()),
        response => response?,
    };
    let mut namespace: Value = serde_json::from_slice(&namespace).unwrap_or_default();
    let has_controller = namespace["status"]["conditions"].is_array();
    if has_controller {
        return Ok(());
    }
    namespace["spec"]["finalizers"] = json!([]);
    let finalize = ApiCall::put(format!("{path}/finalize"), namespace.to_string());
    tolerate(StatusCode::NOT_FOUND, session.call(&finalize).await)
}

/// Success, or the status that is as good.
fn tolerate<T>(status: StatusCode, result: Result<T, ApiCallError>) -> Result<(), ApiCallError> {
    match result {
        Err(error) if error.status() != Some(status) => Err(error),
        _ => Ok(()),
    }
}
