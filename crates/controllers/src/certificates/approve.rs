//! The approver of node client certificates: it asks authorization by SubjectAccessReview.

use std::sync::Arc;

use mizzen_sdk::controller::Context;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use super::request::{CertificateRequest, NODE_CLIENT};
use super::{has_condition, is_issued};
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

struct CsrApprover {
    context: ControllerContext,
    requests: Informer<Object>,
}

/// The recognizers: the permission that the requester needs, and the message of the approval.
const RECOGNIZERS: [(&str, &str); 2] = [
    (
        "selfnodeclient",
        "Auto approving self kubelet client certificate after SubjectAccessReview.",
    ),
    (
        "nodeclient",
        "Auto approving kubelet client certificate after SubjectAccessReview.",
    ),
];

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("certificate-controller");
    let requests = context.informer(&CERTIFICATE_SIGNING_REQUESTS);
    Controller::for_kind(&context, &CERTIFICATE_SIGNING_REQUESTS)
        .queue_name("certificate")
        .workers(5)
        .reconcile(CsrApprover { context, requests })
}

impl Reconcile for CsrApprover {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let is_open = |object: &Arc<Object>| {
            !is_issued(object)
                && !has_condition(object, "Approved")
                && !has_condition(object, "Denied")
        };
        let Some(object) = self.requests.lister().by_key(key)?.filter(is_open) else {
            return Ok(Action::done());
        };
        let request = CertificateRequest::from_object(&object)
            .map_err(|why| Error::other(format!("unable to parse csr {key}: {why}")))?;
        let recognized = matching_recognizers(&object, &request);
        for (permission, message) in recognized {
            if self.is_allowed(&object, permission).await? {
                self.approve(&object, message).await?;
                return Ok(Action::done());
            }
        }
        match recognized {
            [] => Ok(Action::done()),
            // An error, so that the request is tried again: the permission may be granted later.
            _ => Err(Error::other(format!(
                "recognized csr {key} but subject access review was not approved"
            ))),
        }
    }
}

/// The recognizers that match: `selfnodeclient` if the node requests its own certificate, else
/// `nodeclient`.
fn matching_recognizers(
    object: &Value,
    request: &CertificateRequest,
) -> &'static [(&'static str, &'static str)] {
    let is_node = object["spec"]["signerName"].str() == NODE_CLIENT
        && request.signer_violation(NODE_CLIENT).is_none();
    match (
        is_node,
        object["spec"]["username"].str() == request.common_name,
    ) {
        (false, _) => &[],
        (true, true) => &RECOGNIZERS,
        (true, false) => &RECOGNIZERS[1..],
    }
}

impl CsrApprover {
    async fn is_allowed(&self, object: &Object, permission: &str) -> Result<bool, Error> {
        let spec = &object["spec"];
        let review = value!({
            "spec": {
                "user": (spec["username"].clone()),
                "uid": (spec["uid"].clone()),
                "groups": (spec["groups"].clone()),
                "extra": (spec["extra"].clone()),
                "resourceAttributes": {
                    "group": "certificates.k8s.io",
                    "resource": "certificatesigningrequests",
                    "verb": "create",
                    "subresource": permission,
                    "version": "*",
                },
            },
        });
        let api = &self.context.api;
        let review = api.create(&SUBJECT_ACCESS_REVIEWS, &review).await?;
        Ok(review["status"]["allowed"].bool())
    }

    async fn approve(&self, object: &Object, message: &str) -> Result<(), Error> {
        let mut approved = object.clone();
        let condition = value!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
        approved
            .entry("status")
            .entry("conditions")
            .make_list()
            .push(condition);
        self.context
            .api
            .update_at(&CERTIFICATE_SIGNING_REQUESTS, "approval", &approved)
            .await?;
        Ok(())
    }
}
