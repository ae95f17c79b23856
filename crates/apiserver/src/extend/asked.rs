//! A request, as extensions see it.

use mizzen_object::{Kind, Status, User};
use mizzen_value::{Str, Value};

use crate::Server;
use crate::verbs::ResourceCall;

/// A request about an object or a collection.
pub struct RequestInfo<'a> {
    /// The server, to look for other objects: [`Server::read`].
    pub server: Server,
    /// Who asks.
    pub user: &'a User,
    /// What they ask for: `create`, `list`.
    pub verb: &'a str,
    /// The kind, in the version that they speak.
    pub kind: &'a Kind,
    /// Where; empty for everywhere and for what is in no namespace.
    pub namespace: &'a str,
    /// Which one; empty for a collection.
    pub name: &'a str,
    /// The selector of a list or watch, as the client sent it; empty for none. What it leaves out is left out of the response
    /// in any case, and need not be computed.
    pub label_selector: &'a str,
    /// The part of the object, mostly empty.
    pub subresource: &'a str,
    /// The object as stored; none if there is none, or it has not been read yet.
    pub old: Option<&'a Value>,
    /// Whether nothing must come of it.
    pub dry_run: bool,
}

impl<'a> RequestInfo<'a> {
    pub(crate) fn new(call: &'a ResourceCall<'a>, old: Option<&'a Value>) -> RequestInfo<'a> {
        let ResourceCall {
            server,
            request,
            path,
            resource,
            ..
        } = *call;
        RequestInfo {
            server: Server(server.clone()),
            user: &request.user,
            verb: request.info.verb(),
            kind: resource.kind(),
            namespace: &path.namespace,
            name: &path.name,
            label_selector: request.query.text("labelSelector"),
            subresource: &path.subresource,
            old,
            dry_run: request.query.get("dryRun").is_some(),
        }
    }

    /// Whether it is about this resource: `things`.
    pub fn is(&self, plural: &str) -> bool {
        self.kind.plural == plural && self.subresource.is_empty()
    }

    /// 404: there is no such object.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.resource(), self.name)
    }

    /// 403: who may ask may not have this.
    pub fn forbidden(&self, object: &Value, why: &str) -> Status {
        Status::forbidden(&self.kind.resource(), object["metadata"]["name"].str(), why)
    }

    /// 405: it cannot do that.
    pub(super) fn unsupported(&self) -> Status {
        Status::no_such_method()
    }
}

/// A Status that was sent, as the refusal that it is.
pub(crate) fn refusal(status: &Value) -> Status {
    let code = u16::try_from(status["code"].int())
        .ok()
        .filter(|code| *code > 0)
        .unwrap_or(500);
    let reason: Str = status["reason"].str().into();
    Status {
        reason,
        ..Status::failure(code, "", status["message"].str())
    }
}
