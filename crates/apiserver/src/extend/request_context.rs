//! The request, as plug-ins, storages and handlers get it.

use http::HeaderMap;
use mizzen_object::{GroupResource, Kind, Status, User};
use mizzen_value::{Str, Value};

use super::Error;
use crate::Server;
use crate::request::RequestQuery;
use crate::verbs::ResourceCall;

/// A request for an object or a collection.
///
/// ```
/// use mizzen_apiserver::extend::{AdmissionPlugin, Error, RequestContext};
/// use mizzen_object::GroupResource;
/// use mizzen_value::Value;
///
/// const THINGS: GroupResource = GroupResource::new("example.com", "things");
///
/// /// Things are made by their owners, in namespaces that have a budget.
/// struct Budget;
///
/// impl AdmissionPlugin for Budget {
///     async fn validate(&self, context: &RequestContext<'_>, object: Option<&Value>) -> Result<(), Error> {
///         let Some(thing) = object.filter(|_| context.is(&THINGS) && context.verb == "create") else {
///             return Ok(());
///         };
///         if thing["owner"].str() != &*context.user.name {
///             return Err(context.forbidden(thing, "it has another owner"));
///         }
///         let path = format!("/apis/example.com/v1/namespaces/{}/budgets/main", context.namespace);
///         context.server.read(&path).await?; // 404 is the answer if there is none
///         Ok(())
///     }
/// }
/// # drop(Budget);
/// ```
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
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The query of the request.
    pub query: &'a RequestQuery,
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
            headers: &request.headers,
            query: &request.query,
        }
    }

    /// Whether it is for this resource, in any version, and for no subresource.
    pub fn is(&self, resource: &GroupResource) -> bool {
        self.kind.plural == resource.resource
            && self.kind.gvk.group == resource.group
            && self.subresource.is_empty()
    }

    /// 404: the object does not exist.
    pub fn not_found(&self) -> Error {
        Status::not_found(&self.kind.resource(), self.name).into()
    }

    /// 403: the request is rejected.
    pub fn forbidden(&self, object: &Value, why: &str) -> Error {
        Status::forbidden(&self.kind.resource(), object["metadata"]["name"].str(), why).into()
    }

    /// 405: the verb is not supported.
    pub(super) fn unsupported(&self) -> Error {
        Status::no_such_method().into()
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
