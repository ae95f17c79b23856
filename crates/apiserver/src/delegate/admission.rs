//! The admission plug-ins of an aggregated API server.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;

use crate::admission::{
    self, Attributes, MUTATING_POLICY, MUTATING_WEBHOOK, Mutate, Plugin, VALIDATING_POLICY,
    VALIDATING_WEBHOOK, Validate,
};

/// Kubernetes: the recommended plug-ins of an aggregated API server (apiserver/pkg/server/plugins.go).
pub(crate) const ADMISSION_PLUGINS: [&Plugin; 5] = [
    &NAMESPACE_LIFECYCLE,
    &MUTATING_POLICY,
    &MUTATING_WEBHOOK,
    &VALIDATING_POLICY,
    &VALIDATING_WEBHOOK,
];

/// Rejects new objects in namespaces that do not exist on the main server or are being deleted.
pub(crate) const NAMESPACE_LIFECYCLE: Plugin = Plugin::new(
    admission::NAMESPACE_LIFECYCLE.name,
    Mutate::Later {
        concerns: |attributes| attributes.is_create() && !attributes.namespace().is_empty(),
        mutate: admit,
    },
    Validate::Nothing,
);

fn admit<'a>(
    attributes: &'a Attributes<'a>,
    object: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let admitted = admission::check_namespace(attributes, object);
        match (admitted, attributes.call.server.extensions.upstream()) {
            (Err(status), Some(upstream)) if status.code == 404 => {
                // It may be new.
                upstream.read_namespace(attributes.namespace()).await?;
                admission::check_namespace(attributes, object)
            }
            (admitted, _) => admitted,
        }
    })
}
