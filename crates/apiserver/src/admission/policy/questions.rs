//! May somebody do something? Expressions ask, the server's authorizers answer.
//!
//! An expression cannot wait. A question that is not answered at once is kept; the expression goes on with whatever it
//! is told, and is evaluated again when the answer is there.

use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mizzen_cel::library::{
    Authorize, AuthorizerCheck, AuthorizerDecision, CheckSubject, CheckTarget, CheckedResource,
};
use mizzen_object::User;

use crate::admission::webhook::Attributes as Admission;
use crate::authorization::{self, Attributes};
use crate::server::Inner;

/// What one request's expressions ask. Each question is asked once.
pub(super) struct Questions {
    server: Arc<Inner>,
    user: User,
    /// What the request itself is about.
    resource: CheckedResource,
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    known: Vec<(AuthorizerCheck, AuthorizerDecision)>,
    open: Vec<AuthorizerCheck>,
}

impl Questions {
    /// Of the user who sent a request.
    pub(super) fn of(attributes: &Admission) -> Questions {
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
        Questions {
            server,
            user,
            resource,
            asked: Mutex::default(),
        }
    }

    /// What `authorizer.requestResource` is about.
    pub(super) fn resource(&self) -> &CheckedResource {
        &self.resource
    }

    /// Finds the answers to all open questions. Returns whether there were any.
    pub(super) async fn answer(&self) -> bool {
        let open = std::mem::take(&mut self.asked().open);
        for question in &open {
            let decision = self.ask(question).await;
            self.asked().known.push((question.clone(), decision));
        }
        !open.is_empty()
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
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
        let decision = self.server.access.authorizers.authorize(&attributes).await;
        let reason = decision.reason();
        let error = reason.problem().map(str::to_owned);
        AuthorizerDecision {
            allowed: decision.is_allowed(),
            reason: reason.to_string(),
            error,
        }
    }
}

impl Authorize for Questions {
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

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Questions({})", self.user.name)
    }
}

fn target(target: &CheckTarget) -> authorization::Target<'_> {
    match target {
        CheckTarget::Path(path) => authorization::Target::Page(path),
        CheckTarget::Resource(resource) => {
            authorization::Target::Resource(authorization::Resource {
                group: &resource.group,
                version: "*",
                resource: &resource.resource,
                subresource: &resource.subresource,
                namespace: &resource.namespace,
                name: &resource.name,
                fields: &resource.field_selector,
                labels: &resource.label_selector,
            })
        }
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
