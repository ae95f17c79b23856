//! The verbs on resources and their subresources: one file each.

mod apply;
mod create;
mod custom;
mod delete;
mod extension;
mod frames;
mod get;
mod list;
pub(crate) mod patch;
mod review;
mod scale;
mod update;
mod watch;

pub use create::wipe_system_metadata;
pub(crate) use frames::WatchFrameCache;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use mizzen_object::schema::CanonicalObject;
use mizzen_object::validate::names;
use mizzen_object::{Action, Details, Status};
use mizzen_registry::{Key, Object, Resource, Warnings};
use mizzen_value::Value;
use tokio::time::Instant;

use crate::catalog::RouteError;
use crate::chain::failure;
use crate::crd;
use crate::request::{Request, RequestTarget, ResourcePath};
use crate::response::{self, Accept, Response, ResponseOffer, negotiate_among};
use crate::server::ServerParts;

/// Kubernetes: how long a write may take, including webhooks (endpoints/handlers/rest.go).
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// A request for a resource, with what its verb needs.
pub struct ResourceCall<'a> {
    /// The server that answers.
    pub server: &'a Arc<ServerParts>,
    /// The request.
    pub request: &'a Request,
    /// What its path names.
    pub path: &'a ResourcePath,
    /// The resource that the path names.
    pub resource: &'a Resource,
    /// The form of the response.
    pub accept: Accept,
    /// Warnings for the client.
    pub notes: &'a Warnings,
    /// The deadline of webhooks.
    pub until: Instant,
}

/// Serves a request for a resource. Warnings reach the client even if it fails.
pub(crate) async fn serve(
    server: &Arc<ServerParts>,
    request: &Request,
    path: &ResourcePath,
) -> Result<Response, Status> {
    if path.unrouted {
        return Ok(response::text(404, "404 page not found\n"));
    }
    let resource = match request.route.as_ref().map(|route| &route.resource) {
        Some(Ok(resource)) => resource,
        None | Some(Err(RouteError::Group)) => {
            return Ok(response::text(404, "404 page not found\n"));
        }
        Some(Err(RouteError::Resource)) => return Err(Status::no_such_resource()),
    };
    let verb = request.info.verb();
    if let Some(connect) = server.extensions.connection(resource, path) {
        let notes = Warnings::default();
        let call = ResourceCall::of_server(server, request, path, resource, &notes);
        let outcome = connect(&call).await;
        return add_warnings(server, request, outcome, &notes.take());
    }
    if resource.is_custom() && custom::is_unrouted(resource, path, verb) {
        return Ok(response::text(404, "404 page not found\n"));
    }
    let notes = Warnings::default();
    let outcome = handle(server, request, path, resource, &notes).await;
    add_warnings(server, request, outcome, &notes.take())
}

/// Checks verb and media types, and dispatches.
async fn handle(
    server: &Arc<ServerParts>,
    request: &Request,
    path: &ResourcePath,
    resource: &Resource,
    notes: &Warnings,
) -> Result<Response, Status> {
    let verb = request.info.verb();
    if resource.is_custom() {
        warn_of_deprecation(server, request, resource, notes);
        custom::allowed(resource, path, verb, &request.method)?;
    } else {
        if !path.rest.is_empty() {
            return Err(Status::no_such_resource());
        }
        allowed(resource, path, request, verb)?;
        check_segment(&path.name)?;
    }
    if verb == "patch" {
        // Kubernetes: the media type of a patch is checked before that of the response (handlers/patch.go).
        patch::media_type(request, resource)?;
        if path.name.is_empty() {
            return Err(Status::bad_request("name must be provided"));
        }
    }
    let accept = accept(resource, request, path, verb);
    // Kubernetes: a request that go-restful rejects gets no warning.
    let is_routed = !matches!(&accept, Err(status) if status.message.starts_with("406: "));
    if !resource.is_custom() && is_routed {
        warn_of_deprecation(server, request, resource, notes);
    }
    let accept = accept?;
    let until = Instant::now() + WRITE_TIMEOUT;
    let call = ResourceCall {
        server,
        request,
        path,
        resource,
        accept,
        notes,
        until,
    };
    let outcome = call.dispatch(verb).await;
    if crd::is_crd(resource.kind()) && !matches!(verb, "get" | "list" | "watch") {
        crd::synced(server).await;
    }
    outcome
}

/// Adds warnings to a response, also to that of a request that failed.
fn add_warnings(
    server: &ServerParts,
    request: &Request,
    outcome: Result<Response, Status>,
    warnings: &[String],
) -> Result<Response, Status> {
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(status) if warnings.is_empty() => return Err(status),
        Err(status) => failure(server, request, &status),
    };
    response::warn(&mut answer, warnings);
    Ok(answer)
}

/// Warns the client of a deprecated version, and adds the audit annotations.
fn warn_of_deprecation(
    server: &ServerParts,
    request: &Request,
    resource: &Resource,
    notes: &Warnings,
) {
    let kind = resource.kind();
    let Some(deprecation) = kind.deprecation() else {
        return;
    };
    notes.warn(deprecation);
    let gone = kind.deprecated.as_ref().and_then(|old| old.gone.as_ref());
    // Made-up subresources have no series.
    let is_served = |path: &ResourcePath| {
        path.subresource.is_empty() || kind.subresource(&path.subresource).is_some()
    };
    if let RequestTarget::Resource(path) = request.info.target()
        && is_served(path)
    {
        let metrics = &server.metrics;
        metrics.note_deprecated(path, gone.map_or("", |gone| gone));
    }
    request.record.annotate("k8s.io/deprecated", "true");
    if let Some(gone) = gone {
        request
            .record
            .annotate("k8s.io/removed-release", gone.to_string());
    }
}

/// Negotiates the form of the response.
fn accept(
    resource: &Resource,
    request: &Request,
    path: &ResourcePath,
    verb: &str,
) -> Result<Accept, Status> {
    // Logs and streams have one form, whatever the client accepts.
    let is_streamed = matches!(
        path.subresource.as_str(),
        "log" | "attach" | "exec" | "portforward"
    );
    if is_streamed && !resource.is_custom() {
        return Ok(Accept::JSON);
    }
    let listed = path.name.is_empty() && matches!(verb, "list" | "watch");
    let tables = !path.subresource.is_empty() || !resource.kind().columns.is_empty();
    let offer = ResponseOffer {
        tables,
        protobuf: !resource.kind().rules.loose,
        restful: !resource.is_custom(),
    };
    let accept = negotiate_among(&request.headers, &request.query, listed, offer)?;
    Ok(Accept {
        audited: request.record.wants_response(),
        ..accept
    })
}

/// Replaces the status of a cluster-scoped object, as the server itself.
pub(crate) async fn put_status(
    server: &Arc<ServerParts>,
    resource: &Resource,
    name: &str,
    object: Value,
) -> Result<(), Status> {
    let kind = resource.kind();
    let path = ResourcePath {
        group: kind.gvk.group.clone(),
        version: kind.gvk.version.clone(),
        resource: kind.plural.clone(),
        name: name.into(),
        subresource: "status".into(),
        ..ResourcePath::default()
    };
    let request = Request::of_server(Method::PUT, path.clone());
    let notes = Warnings::default();
    let call = ResourceCall::of_server(server, &request, &path, resource, &notes);
    update::replace(&call, Action::Status, object.into(), false)
        .await
        .map(drop)
}

/// A key must have a name, and a namespace if the kind is namespaced. Kubernetes:
/// registry/generic/registry/store.go.
pub fn check_key(kind: &mizzen_object::Kind, namespace: &str, name: &str) -> Result<(), Status> {
    match (
        kind.is_namespaced() && namespace.is_empty(),
        name.is_empty(),
    ) {
        (true, _) => Err(Status::bad_request("Namespace parameter required.")),
        (_, true) => Err(Status::bad_request("Name parameter required.")),
        _ => check_segment(name),
    }
}

/// Rejects names that cannot be a path segment.
fn check_segment(name: &str) -> Result<(), Status> {
    let problems = names::is_path_segment_name(name);
    if problems.is_empty() {
        return Ok(());
    }
    let shown = mizzen_value::json::quote(name);
    Err(Status::bad_request(format!(
        "Name parameter invalid: {shown}: {}",
        problems.join(";")
    )))
}

/// Checks that the resource has the verb.
fn allowed(
    resource: &Resource,
    path: &ResourcePath,
    request: &Request,
    verb: &str,
) -> Result<(), Status> {
    let kind = resource.kind();
    let verbs = match path.subresource.as_str() {
        "" => &kind.verbs,
        name => {
            &kind
                .subresource(name)
                .ok_or_else(Status::no_such_resource)?
                .verbs
        }
    };
    let has = |verb: &str| verbs.iter().any(|known| known == verb);
    let no_such_method = Status::no_such_method;
    // The legacy `/watch/` routes support only GET.
    if path.verb_in_path {
        let is_routed = verb == "watch" && path.subresource.is_empty() && has("watch");
        return match request.method == Method::GET {
            _ if !is_routed => Err(Status::no_such_resource()),
            true => Ok(()),
            false => Err(no_such_method()),
        };
    }
    // Kubernetes: a subresource needs a name, and an empty one is invalid.
    if !path.subresource.is_empty() && path.name.is_empty() {
        let verb = if matches!(verb, "list" | "watch") {
            "get"
        } else {
            verb
        };
        return Err(if has(verb) {
            Status::bad_request("name must be provided")
        } else {
            no_such_method()
        });
    }
    // Across all namespaces, resources can only be listed and watched.
    if kind.is_namespaced() && !path.has_namespace && !has("list") {
        return Err(Status::no_such_resource());
    }
    // A namespaced object is created in a namespace.
    let placed = verb != "create"
        || !path.subresource.is_empty()
        || !kind.is_namespaced()
        || path.has_namespace;
    let whole = match verb {
        "create" => path.name.is_empty() || !path.subresource.is_empty(),
        "update" | "patch" => !path.name.is_empty(),
        _ => true,
    };
    let method = request.method.as_str();
    // A watch of a list without watch support fails later, with its own error.
    let known = has(verb) || verb == "watch" && has("list");
    let possible = method != "HEAD" && placed && whole && known;
    let deletes_all = verb == "deletecollection" && kind.is_namespaced() && !path.has_namespace;
    if possible && !deletes_all {
        return Ok(());
    }
    Err(no_such_method())
}

impl<'a> ResourceCall<'a> {
    /// A request by the server itself.
    pub fn of_server(
        server: &'a Arc<ServerParts>,
        request: &'a Request,
        path: &'a ResourcePath,
        resource: &'a Resource,
        notes: &'a Warnings,
    ) -> ResourceCall<'a> {
        let until = Instant::now() + WRITE_TIMEOUT;
        ResourceCall {
            server,
            request,
            path,
            resource,
            accept: Accept::JSON,
            notes,
            until,
        }
    }
}

impl ResourceCall<'_> {
    async fn dispatch(&self, verb: &str) -> Result<Response, Status> {
        if let Some(own) = self.server.extensions.answers(self) {
            return extension::answer(self, own, verb).await;
        }
        match (self.path.subresource.as_str(), verb) {
            ("", "get") | ("status", "get") => get::get(self).await,
            ("", "list") => list::list(self).await,
            ("", "watch") => watch::watch(self).await,
            ("", "create") if review::is_review(self.resource.kind()) => review::create(self).await,
            ("", "create") => create::create(self).await,
            ("", "update") => update::update(self, Action::Update).await,
            ("status", "update") => update::update(self, Action::Status).await,
            ("", "patch") => patch::patch(self, Action::Update).await,
            ("status", "patch") => patch::patch(self, Action::Status).await,
            ("", "delete") => delete::delete(self).await,
            ("", "deletecollection") => delete::delete_collection(self).await,
            ("scale", "get") => scale::get(self).await,
            ("scale", "update") => scale::update(self).await,
            ("scale", "patch") => scale::patch(self).await,
            (subresource, "get" | "update" | "patch") => {
                self.dispatch_to_object(subresource, verb).await
            }
            (subresource, _) => Err(not_implemented(subresource)),
        }
    }

    /// A subresource that is the object itself with its own rules, such as `approval`.
    async fn dispatch_to_object(&self, subresource: &str, verb: &str) -> Result<Response, Status> {
        let resource = self.server.catalog.subresource(self.resource, subresource);
        let resource = resource.ok_or_else(|| not_implemented(subresource))?;
        let call = ResourceCall {
            resource: &resource,
            ..*self
        };
        // An approval is a part of the status.
        let action = if subresource == "approval" {
            Action::Status
        } else {
            Action::Update
        };
        match verb {
            "get" => get::get(&call).await,
            "update" => update::update(&call, action).await,
            _ => patch::patch(&call, action).await,
        }
    }

    /// The key of the object in the path.
    pub fn key(&self) -> Key {
        Key::new(&self.path.namespace, &self.path.name)
    }

    /// The response with an object.
    pub fn object(&self, object: &Object, code: u16) -> Result<Response, Status> {
        self.check_include()?;
        self.check_listed(false)?;
        let renderer = self.renderer();
        Ok(self
            .request
            .record
            .time_serialization(|| renderer.object(object, code)))
    }

    /// The Status of an object that was deleted.
    fn deleted(&self, uid: &str, code: u16) -> Response {
        let kind = self.resource.kind();
        let status = Status::success(Details {
            name: self.path.name.clone(),
            group: kind.gvk.group.clone(),
            kind: kind.plural.clone(),
            uid: uid.into(),
            causes: Vec::new(),
        });
        response::status_value(&self.server.types, &status, self.accept, code)
    }

    /// How this request wants objects rendered.
    pub fn renderer(&self) -> response::Renderer<'_> {
        response::Renderer {
            types: &self.server.types,
            resource: self.resource,
            accept: self.accept,
            include: self.request.query.text("includeObject"),
            now: self.server.registry.now(),
        }
    }

    /// Checks that `PartialObjectMetadataList` is requested for a list, and `PartialObjectMetadata` for an object.
    pub(crate) fn check_listed(&self, is_list: bool) -> Result<(), Status> {
        let Accept {
            form: response::ResponseForm::Metadata(_),
            listed,
            ..
        } = self.accept
        else {
            return Ok(());
        };
        let found = self.go_type(is_list);
        match (is_list, listed) {
            (true, false) => Err(response::not_acceptable_because(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({found})"
            ))),
            (false, true) => Err(response::not_acceptable_because(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({found})"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks `includeObject`, which is how much of an object a table row has.
    pub fn check_include(&self) -> Result<(), Status> {
        let include = self.request.query.text("includeObject");
        if matches!(self.accept.form, response::ResponseForm::Table(_)) {
            if self.resource.kind().columns.is_empty() {
                return Err(response::not_acceptable());
            }
            if !matches!(include, "" | "None" | "Metadata" | "Object") {
                let shown = mizzen_value::json::quote(include);
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {shown}: must be 'Metadata', \
                     'Object', 'None', or empty"
                )));
            }
        }
        Ok(())
    }

    /// Go's type of an object, or of a list of them, in upstream's server.
    fn go_type(&self, is_list: bool) -> String {
        let kind = self.resource.kind();
        let list = if is_list { "List" } else { "" };
        let package = match kind.gvk.group.split('.').next().unwrap_or_default() {
            _ if self.resource.is_custom() => return format!("*unstructured.Unstructured{list}"),
            "" | "events" => "core",
            package => package,
        };
        format!("*{package}.{}{list}", kind.gvk.kind)
    }
}

/// 501: discovery lists the subresource, but this server does not implement it.
fn not_implemented(subresource: &str) -> Status {
    Status::failure(
        501,
        "NotImplemented",
        format!("the subresource {subresource} is not implemented by this server"),
    )
}

/// Checks that the namespace and the name of an object are those of the path, in this order; sets the namespace.
pub(crate) fn check_name(call: &ResourceCall, object: &mut CanonicalObject) -> Result<(), Status> {
    keep_namespace(call, object)?;
    check_metadata_name(call.path, &object["metadata"])
}

/// Checks that the name of an object is that of the path.
fn check_metadata_name(path: &ResourcePath, metadata: &Value) -> Result<(), Status> {
    let name = metadata["name"].str();
    if name.is_empty() {
        let name = &path.name;
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != path.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            path.name
        )));
    }
    Ok(())
}

/// Sets or removes the namespace of an object by that of the path.
pub fn set_namespace(path: &ResourcePath, metadata: &mut Value) -> Result<(), Status> {
    match namespace_of_path(path, metadata)? {
        None => {}
        Some("") => drop(metadata.remove("namespace")),
        Some(namespace) => metadata.set("namespace", namespace),
    }
    Ok(())
}

/// [`set_namespace`] of an object that keeps its form.
pub(crate) fn keep_namespace(
    call: &ResourceCall,
    object: &mut CanonicalObject,
) -> Result<(), Status> {
    match namespace_of_path(call.path, &object["metadata"])? {
        None => {}
        Some("") => object.remove_metadata("namespace"),
        Some(namespace) => object.set_metadata(&call.resource.kind().root, "namespace", namespace),
    }
    Ok(())
}

/// The namespace that an object gets from the path, if it has another one.
fn namespace_of_path<'a>(
    path: &'a ResourcePath,
    metadata: &Value,
) -> Result<Option<&'a str>, Status> {
    let namespace = metadata["namespace"].str();
    if namespace == path.namespace {
        return Ok(None);
    }
    match path.namespace.is_empty() || namespace.is_empty() {
        true => Ok(Some(&path.namespace)),
        false => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}
