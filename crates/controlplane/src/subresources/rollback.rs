//! `POST` to `deployments/NAME/rollback`, a subresource of versions before apps/v1beta2: requests a rollback to a revision.
//!
//! Kubernetes: RollbackREST in pkg/registry/apps/deployment/storage/storage.go of v1.15.

use mizzen_object::schema::CanonicalObject;
use mizzen_object::validate::{field, meta};
use mizzen_object::{Path, Status, Violations};
use mizzen_registry::{BoxFuture, Update, UpdateFn};
use mizzen_value::{Value, value};

use mizzen_apiserver::response::{self, Response, ResponseForm, not_acceptable};
use mizzen_apiserver::verbs::ResourceCall;
use mizzen_apiserver::{admission, decode, options};

pub(super) async fn create(call: &ResourceCall<'_>) -> Result<Response, Status> {
    if matches!(call.accept.form, ResponseForm::Table(_)) {
        return Err(not_acceptable());
    }
    let options = options::write_options(call.request, "CreateOptions")?;
    let below = call.resource.kind().subresource(&call.path.subresource);
    let gvk = below
        .and_then(|below| below.kind.as_ref())
        .ok_or_else(Status::no_such_resource)?;
    let root = call
        .server
        .types
        .subresource(gvk)
        .ok_or_else(Status::no_such_resource)?;
    let mut rollback = decode::decode_body_as(call, gvk, None, root, options.strictness)?;
    admission::admit_other(call, gvk, root, &mut rollback, None).await?;
    let mut violations = Violations::default();
    validate(&rollback, &mut violations);
    if !violations.is_empty() {
        return Err(Status::invalid(gvk, rollback["name"].str(), &violations));
    }
    if rollback["name"].str() != call.path.name {
        return Err(Status::bad_request(
            "name in URL does not match name in DeploymentRollback object",
        ));
    }
    admission::check_other(call, gvk, root, &rollback, None).await?;
    let key = call.key();
    let mut change = RollbackRequest {
        rollback: &rollback,
    };
    let update = Update {
        user: call.request.user.clone(),
        dry_run: options.dry_run,
        unchecked: true,
        ..Update::new(call.resource, &key, &mut change)
    };
    call.server.registry.update(update).await?;
    Ok(accepted(call))
}

fn validate(rollback: &Value, violations: &mut Violations) {
    meta::annotations(
        &rollback["updatedAnnotations"],
        &Path::new("updatedAnnotations"),
        violations,
    );
    if rollback["name"].is_empty() {
        violations.required("name", "name is required");
    }
    let path = Path::new("rollback");
    field::non_negative(
        rollback["rollbackTo"]["revision"].int(),
        &path.child("version"),
        violations,
    );
}

/// Kubernetes: 201, with a Status of code 200.
fn accepted(call: &ResourceCall) -> Response {
    let message = format!(
        "rollback request for deployment \"{}\" succeeded",
        call.path.name
    );
    let mut status = Status::success(Default::default());
    status.remove("details");
    status.set("message", message);
    status.set("code", 200);
    response::status_value(&call.server.types, &status, call.accept, 201)
}

/// Sets `spec.rollbackTo` of a Deployment.
struct RollbackRequest<'a> {
    rollback: &'a Value,
}

impl UpdateFn for RollbackRequest<'_> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let mut deployment = current.expect("the update does not create").clone();
        for (name, value) in self.rollback["updatedAnnotations"].entries() {
            deployment
                .entry("metadata")
                .entry("annotations")
                .set(name, value.clone());
        }
        let revision = self.rollback["rollbackTo"]["revision"].int();
        deployment
            .entry("spec")
            .set("rollbackTo", value!({"revision": revision}));
        // Without a version the registry retries after a conflict.
        deployment.entry("metadata").set("resourceVersion", "");
        Box::pin(async { Ok(deployment.into()) })
    }
}
