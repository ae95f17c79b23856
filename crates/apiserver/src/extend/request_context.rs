//! The request, as plug-ins, storages and handlers get it.

use mizzen_object::{Kind, Status, User};
use mizzen_value::{Str, Value};

use crate::Server;
use crate::verbs::ResourceCall;

/// A request for an object or a collection.
pub struct RequestContext<'a> {
    /// The server, to read other objects: [`Server::read`].
    pub server: Server,
    /// The user.
    pub user: &'a User,
    /// The verb: `create`, `list`.
    pub verb: &'a str,
    /// The kind, in the version of the request.
    pub kind: &'a Kind,
    /// The namespace; empty for all namespaces and for cluster-scoped kinds.
    pub namespace: &'a str,
    /// The name; empty for a collection.
    pub name: &'a str,
    /// The label selector of a list or watch; empty for none. The server filters the response in any case.
    pub label_selector: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The stored object; none if it does not exist or has not been read yet.
    pub old: Option<&'a Value>,
    /// Whether it is a dry run.
    pub dry_run: bool,
}

impl<'a> RequestContext<'a> {
    pub(crate) fn new(call: &'a ResourceCall<'a>, old: Option<&'a Value>) -> RequestContext<'a> {
        let ResourceCall {
            server,
            request,
            path,
            resource,
            ..
        } = *call;
        RequestContext {
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

    /// Whether it is for this resource: `things`.
    pub fn is(&self, plural: &str) -> bool {
        self.kind.plural == plural && self.subresource.is_empty()
    }

    /// 404: the object does not exist.
    pub fn not_found(&self) -> Status {
        Status::not_found(&self.kind.resource(), self.name)
    }

    /// 403: the request is rejected.
    pub fn forbidden(&self, object: &Value, why: &str) -> Status {
        Status::forbidden(&self.kind.resource(), object["metadata"]["name"].str(), why)
    }

    /// 405: the verb is not supported.
    pub(super) fn unsupported(&self) -> Status {
        Status::no_such_method()
    }
}

/// The error in a Status object.
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
