//! What an expression wants to know about rights. Expressions do not wait, but those who decide may have to.
//!
//! A question that was not answered yet is noted and answered with an error; when the expression is over, the notes are
//! answered, and it is begun again.

use std::sync::{Mutex, PoisonError};

use mizzen_object::cel::library::{Authorize, Decision, Question, Subject, Target};

use super::attributes::Attributes;
use crate::access;
use crate::identity::User;

/// Questions, and the answers so far.
#[derive(Debug, Default)]
pub(super) struct Questions {
    answered: Mutex<Vec<(Question, Decision)>>,
    open: Mutex<Vec<Question>>,
}

impl Authorize for Questions {
    fn authorize(&self, question: &Question) -> Decision {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        match answered.iter().find(|(known, _)| known == question) {
            Some((_, decision)) => decision.clone(),
            None => {
                self.open.lock().unwrap_or_else(PoisonError::into_inner).push(question.clone());
                Decision { error: Some("not decided yet".into()), ..Decision::default() }
            }
        }
    }
}

impl Questions {
    /// Answers what is open; false if nothing is.
    pub async fn answer(&self, attributes: &Attributes<'_>) -> bool {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let any = !open.is_empty();
        for question in open {
            let decision = decide(attributes, &question).await;
            self.answered.lock().unwrap_or_else(PoisonError::into_inner).push((question, decision));
        }
        any
    }
}

async fn decide(attributes: &Attributes<'_>, question: &Question) -> Decision {
    let user = match &question.subject {
        Subject::Requester => attributes.call.request.user.clone(),
        Subject::ServiceAccount { namespace, name } => service_account(namespace, name),
    };
    let target = match &question.target {
        Target::Path(path) => access::Target::Page(path),
        Target::Resource(asked) => access::Target::Resource(access::Resource {
            group: &asked.group,
            version: "*",
            resource: &asked.resource,
            subresource: &asked.subresource,
            namespace: &asked.namespace,
            name: &asked.name,
            fields: &asked.field_selector,
            labels: &asked.label_selector,
        }),
    };
    let wanted = access::Attributes { user: &user, verb: &question.verb, target };
    let decision = attributes.call.server.access.authorizers.authorize(&wanted).await;
    Decision { allowed: decision.is_allowed(), reason: decision.reason().to_string(), error: None }
}

fn service_account(namespace: &str, name: &str) -> User {
    User {
        name: format!("system:serviceaccount:{namespace}:{name}").into(),
        groups: vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}").into(),
            "system:authenticated".into(),
        ],
        ..User::default()
    }
}
