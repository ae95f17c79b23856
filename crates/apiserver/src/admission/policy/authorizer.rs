//! The `authorizer` variable of CEL expressions.
//!
//! An expression is evaluated synchronously. A check whose decision is not known yet is recorded; the expression goes on
//! with a default, and is evaluated again when the decision is known.

use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mizzen_authorization::{Attributes, AttributesTarget, ResourceAttributes};
use mizzen_cel::library::{
    Authorize, AuthorizerCheck, AuthorizerDecision, CheckSubject, CheckTarget, CheckedResource,
};
use mizzen_object::User;

use crate::admission::webhook::VersionedAttributes as Admission;
use crate::server::ServerParts;

/// The authorization checks of a request's expressions. Each is made once.
pub(super) struct AuthorizerChecks {
    server: Arc<ServerParts>,
    user: User,

    /// The resource of the request.
    resource: CheckedResource,
    asked: Mutex<CheckState>,
}

#[derive(Default)]
struct CheckState {
    known: Vec<(AuthorizerCheck, AuthorizerDecision)>,
    open: Vec<AuthorizerCheck>,
}

impl AuthorizerChecks {
    /// For the user of a request.
    pub(super) fn of(attributes: &Admission) -> AuthorizerChecks {
        let (call, kind) = (attributes.call, attributes.call.resource.kind());
        let resource = CheckedResource {
            group: kind.gvk.group.to_string(),
            resource: kind.plural.to_string(),
            subresource: call.path.subresource.to_string(),
            namespace: attributes.namespace().into(),
            name: attributes.name().into(),
            ..CheckedResource::default()
        };
        let (server, user) = (call.server.clone(), call.request.user.clone());
        AuthorizerChecks {
            server,
            user,
            resource,
            asked: Mutex::default(),
        }
    }

    /// `authorizer.requestResource`.
    pub(super) fn resource(&self) -> &CheckedResource {
        &self.resource
    }

    /// Makes all open checks. Returns whether there were any.
    pub(super) async fn answer(&self) -> bool {
        let open = std::mem::take(&mut self.asked().open);
        for question in &open {
            let decision = self.ask(question).await;
            self.asked().known.push((question.clone(), decision));
        }
        !open.is_empty()
    }

    fn asked(&self) -> MutexGuard<'_, CheckState> {
        self.asked.lock()
    }

    async fn ask(&self, question: &AuthorizerCheck) -> AuthorizerDecision {
        let user = match &question.subject {
            CheckSubject::Requester => self.user.clone(),
            CheckSubject::ServiceAccount { namespace, name } => service_account(namespace, name),
        };
        let attributes = Attributes {
            user: &user,
            verb: &question.verb,
            target: target(&question.target),
        };
        let decision = self
            .server
            .authorization
            .authorizers
            .authorize(&attributes)
            .await;
        let reason = decision.reason();
        let error = reason.problem().map(str::to_owned);
        AuthorizerDecision {
            allowed: decision.is_allowed(),
            reason: reason.to_string(),
            error,
        }
    }
}

impl Authorize for AuthorizerChecks {
    fn authorize(&self, question: &AuthorizerCheck) -> AuthorizerDecision {
        if let Some((_, decision)) = self
            .asked()
            .known
            .iter()
            .find(|(known, _)| known == question)
        {
            return decision.clone();
        }
        let answer = pin!(self.ask(question)).poll(&mut Context::from_waker(Waker::noop()));
        let mut asked = self.asked();
        match answer {
            Poll::Ready(decision) => {
                asked.known.push((question.clone(), decision.clone()));
                decision
            }
            Poll::Pending => {
                asked.open.push(question.clone());
                AuthorizerDecision::default()
            }
        }
    }
}

impl fmt::Debug for AuthorizerChecks {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "AuthorizerChecks({})", self.user.name)
    }
}

fn target(target: &CheckTarget) -> AttributesTarget<'_> {
    match target {
        CheckTarget::Path(path) => AttributesTarget::NonResource(path),
        CheckTarget::Resource(resource) => AttributesTarget::Resource(ResourceAttributes {
            group: &resource.group,
            version: "*",
            resource: &resource.resource,
            subresource: &resource.subresource,
            namespace: &resource.namespace,
            name: &resource.name,
            fields: &resource.field_selector,
            labels: &resource.label_selector,
        }),
    }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}").into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}").into(),
        ],
        ..User::default()
    }
}
