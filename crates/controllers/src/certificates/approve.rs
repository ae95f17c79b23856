//! May a node have the certificate that it asks for? Authorization says so.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use super::request::{NODE_CLIENT, Request};
use super::{has_condition, is_issued};
use crate::{After, Context, Error, Reconcile, Work};

struct Approvals {
    context: Context,
    requests: Informer<Object>,
}

/// Something that may be asked for: what one must be allowed to create for it, and what is said then.
const KINDS: [(&str, &str); 2] = [
    (
        "selfnodeclient",
        "Auto approving self kubelet client certificate after SubjectAccessReview.",
    ),
    (
        "nodeclient",
        "Auto approving kubelet client certificate after SubjectAccessReview.",
    ),
];

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("certificate-controller");
    let queue = context.queue("certificate");
    let requests = context.follow(&CERTIFICATE_SIGNING_REQUESTS);
    let todo = queue.clone();
    requests.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(queue, 5, Arc::new(Approvals { context, requests }))
}

impl Reconcile for Approvals {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(object) = self
            .requests
            .lister()
            .by_key(key)?
            .filter(|object| is_open(object))
        else {
            return Ok(After::Done);
        };
        let request = Request::of(&object)
            .map_err(|why| Error::Other(format!("unable to parse csr {key}: {why}")))?;
        let asked = asked(&object, &request);
        for (permission, message) in asked {
            if self.is_allowed(&object, permission).await? {
                self.approve(&object, message).await?;
                return Ok(After::Done);
            }
        }
        match asked {
            [] => Ok(After::Done),
            // Whoever grants the permission later need not touch the request.
            _ => Err(Error::Other(format!(
                "recognized csr {key} but subject access review was not approved"
            ))),
        }
    }
}

fn is_open(object: &Value) -> bool {
    !is_issued(object) && !has_condition(object, "Approved") && !has_condition(object, "Denied")
}

/// What is asked for: a node's own certificate if the node asks itself, any node's if another asks.
fn asked(object: &Value, request: &Request) -> &'static [(&'static str, &'static str)] {
    let is_node = object["spec"]["signerName"].str() == NODE_CLIENT
        && request.objection(NODE_CLIENT).is_none();
    match (
        is_node,
        object["spec"]["username"].str() == request.common_name,
    ) {
        (false, _) => &[],
        (true, true) => &KINDS,
        (true, false) => &KINDS[1..],
    }
}

impl Approvals {
    async fn is_allowed(&self, object: &Object, permission: &str) -> Result<bool, Error> {
        let review = self
            .context
            .api
            .create(&SUBJECT_ACCESS_REVIEWS, &review(object, permission))
            .await?;
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

fn review(object: &Object, permission: &str) -> Value {
    let spec = &object["spec"];
    value!({
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
    })
}
