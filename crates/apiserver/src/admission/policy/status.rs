//! Says in a policy's status what is strange about its types.
//!
//! Kubernetes: a controller does this, so an API server that stands alone does not.

use std::sync::{Arc, Weak};

use mizzen_kinds::{Shapes, expression_warnings};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status, Value, json};
use mizzen_registry::{Key, Resource, Revision};
use tracing::warn;

use crate::catalog::Catalog;
use crate::server::Inner;
use crate::verbs;

/// Checks the policies that are there, and from now on those that change.
pub(crate) fn follow(server: &Arc<Inner>) {
    let policies = server.catalog.get("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies");
    if let Some(policies) = policies {
        tokio::spawn(check_all(Arc::downgrade(server), policies));
    }
}

async fn check_all(server: Weak<Inner>, policies: Resource) {
    loop {
        let snapshot = policies.space().snapshot();
        let mut seen: Revision = snapshot.at();
        for record in snapshot.range("", None) {
            let Some(server) = server.upgrade() else { return };
            check(&server, &policies, &record.key).await;
        }
        while let Ok(mut watch) = policies.space().watch(seen) {
            let Ok(events) = watch.next().await else { break };
            let Some(server) = server.upgrade() else { return };
            for event in events {
                check(&server, &policies, &event.record.key).await;
                seen = event.revision;
            }
        }
    }
}

/// Writes a policy's status unless it is about the policy as it is. Who changes it meanwhile brings the next turn.
async fn check(server: &Arc<Inner>, policies: &Resource, name: &str) {
    match write(server, policies, name).await {
        Err(status) if status.code != 404 && status.code != 409 => {
            warn!(policy = name, problem = %status.message, "cannot write what is strange about a policy");
        }
        _ => {}
    }
}

async fn write(server: &Arc<Inner>, policies: &Resource, name: &str) -> Result<(), Status> {
    let mut policy = server.registry.get(policies, &Key::new("", name), "")?.value();
    let generation = policy["metadata"]["generation"].int();
    if generation <= policy["status"]["observedGeneration"].int() {
        return Ok(());
    }
    let warnings = expression_warnings(&policy, &Known(&server.catalog));
    let mut checking = Value::object();
    if !warnings.is_empty() {
        checking.set("expressionWarnings", warnings);
    }
    let status = policy.entry("status");
    status.set("observedGeneration", generation);
    status.set("typeChecking", checking);
    verbs::put_status(server, policies, name, json::to_string(&policy).into()).await
}

/// The shapes of all kinds that are served.
struct Known<'a>(&'a Catalog);

impl Shapes for Known<'_> {
    fn kind(&self, group: &str, version: &str, resource: &str) -> Option<GroupVersionKind> {
        Some(self.0.get(group, version, resource)?.kind().gvk.clone())
    }

    fn shape(&self, kind: &GroupVersionKind) -> Option<Arc<Struct>> {
        Some(self.0.of_kind(kind)?.kind().root.clone())
    }
}
