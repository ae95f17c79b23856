//! One file per verb: what is done with objects, and what the client gets.

mod apply;
mod create;
mod custom;
mod delete;
mod frames;
mod get;
mod list;
mod own;
pub(crate) mod patch;
mod review;
mod scale;
mod update;
mod watch;

pub use create::wipe;
pub(crate) use frames::Frames;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use mizzen_object::validate::names;
use mizzen_object::{Action, Status};
use mizzen_registry::{Key, Object, Resource, Warnings};
use mizzen_value::Value;
use tokio::time::Instant;

use crate::answer::{self, Accept, Answer, Offer, negotiate_among};
use crate::authorization::second;
use crate::catalog::Nowhere;
use crate::chain::failure;
use crate::crd;
use crate::request::{Request, ResourcePath};
use crate::server::Inner;

/// Kubernetes: how long a write may take, other people's webhooks included (endpoints/handlers/rest.go).
const PATIENCE: Duration = Duration::from_secs(34);

/// A request about a resource, on its way to its verb.
pub struct Call<'a> {
    /// The server that answers.
    pub server: &'a Arc<Inner>,
    /// The request.
    pub request: &'a Request,
    /// What its path names.
    pub path: &'a ResourcePath,
    /// The resource that the path names.
    pub resource: &'a Resource,
    /// The form of the response.
    pub accept: Accept,
    /// What the client is told besides.
    pub notes: &'a Warnings,
    /// When those whom the server asks must have answered.
    pub until: Instant,
}

/// Answers a request about a resource.
pub(crate) async fn answer(
    server: &Arc<Inner>,
    request: &Request,
    path: &ResourcePath,
) -> Result<Answer, Status> {
    if path.unrouted {
        return Ok(answer::text(404, "404 page not found\n"));
    }
    let resource = &match server.catalog.find(path) {
        Ok(resource) => resource,
        Err(Nowhere::Group) => return Ok(answer::text(404, "404 page not found\n")),
        Err(Nowhere::Resource) => return Err(Status::no_such_resource()),
    };
    let verb = request.info.verb();
    if let Some(connect) = server.extensions.connection(resource, path) {
        let notes = Warnings::default();
        let call = Call::of_server(server, request, path, resource, &notes);
        let outcome = connect(&call).await;
        return finish(server, request, outcome, &notes.take());
    }
    if resource.is_custom() && custom::leads_nowhere(resource, path, verb) {
        return Ok(answer::text(404, "404 page not found\n"));
    }
    let notes = Warnings::default();
    let outcome = routed(server, request, path, resource, &notes).await;
    finish(server, request, outcome, &notes.take())
}

/// Answers a request whose resource is there. What is left in `notes` reaches the client whether or not it worked.
async fn routed(
    server: &Arc<Inner>,
    request: &Request,
    path: &ResourcePath,
    resource: &Resource,
    notes: &Warnings,
) -> Result<Answer, Status> {
    let verb = request.info.verb();
    if resource.is_custom() {
        warn_of_deprecation(request, resource, notes);
        custom::allowed(resource, path, verb, &request.method)?;
    } else {
        if !path.rest.is_empty() {
            return Err(Status::no_such_resource());
        }
        allowed(resource, path, request, verb)?;
        check_segment(&path.name)?;
    }
    if verb == "patch" {
        // Kubernetes: a patch that cannot be read comes before an answer that cannot be written (handlers/patch.go).
        patch::media_type(request, resource)?;
        if path.name.is_empty() {
            return Err(Status::bad_request("name must be provided"));
        }
    }
    let accept = accept(resource, request, path, verb);
    // Kubernetes: what go-restful refuses does not get as far as the warning.
    let is_routed = !matches!(&accept, Err(refusal) if refusal.message.starts_with("406: "));
    if !resource.is_custom() && is_routed {
        warn_of_deprecation(request, resource, notes);
    }
    let accept = accept?;
    let until = Instant::now() + PATIENCE;
    let call = Call {
        server,
        request,
        path,
        resource,
        accept,
        notes,
        until,
    };
    let outcome = call.dispatch(verb).await;
    if crd::defines(resource.kind()) && !matches!(verb, "get" | "list" | "watch") {
        crd::settled(server).await;
    }
    outcome
}

/// Adds warnings to an answer, or to a refusal.
fn finish(
    server: &Inner,
    request: &Request,
    outcome: Result<Answer, Status>,
    warnings: &[String],
) -> Result<Answer, Status> {
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(status) if warnings.is_empty() => return Err(status),
        Err(status) => failure(server, request, &status),
    };
    answer::warn(&mut answer, warnings);
    Ok(answer)
}

/// Warns the client that it uses what will go, and notes it for auditors.
fn warn_of_deprecation(request: &Request, resource: &Resource, notes: &Warnings) {
    if let Some(deprecation) = resource.kind().deprecation() {
        notes.warn(deprecation);
        remember_deprecation(request, resource);
    }
}

/// Notes for auditors that somebody uses what will go.
fn remember_deprecation(request: &Request, resource: &Resource) {
    request.record.annotate("k8s.io/deprecated", "true");
    let gone = resource
        .kind()
        .deprecated
        .as_ref()
        .and_then(|old| old.gone.as_ref());
    if let Some(gone) = gone {
        request
            .record
            .annotate("k8s.io/removed-release", gone.to_string());
    }
}

/// The form of the answer.
fn accept(
    resource: &Resource,
    request: &Request,
    path: &ResourcePath,
    verb: &str,
) -> Result<Accept, Status> {
    // What a container wrote, or a stream, has one form, whatever the client would like.
    let is_streamed = matches!(
        path.subresource.as_str(),
        "log" | "attach" | "exec" | "portforward"
    );
    if is_streamed && !resource.is_custom() {
        return Ok(Accept::JSON);
    }
    let listed = path.name.is_empty() && matches!(verb, "list" | "watch");
    let tables = !path.subresource.is_empty() || !resource.kind().columns.is_empty();
    let offer = Offer {
        tables,
        protobuf: !resource.kind().rules.loose,
        restful: !resource.is_custom(),
    };
    let accept = negotiate_among(&request.headers, &request.query, listed, offer)?;
    Ok(Accept {
        kept: request.record.wants_response(),
        ..accept
    })
}

/// Replaces the status of an object that belongs to no namespace, as the server itself.
pub(crate) async fn put_status(
    server: &Arc<Inner>,
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
    let call = Call::of_server(server, &request, &path, resource, &notes);
    update::replace(&call, Action::Status, object, false)
        .await
        .map(drop)
}

/// An object that is looked for must have a name, and a namespace where it can have one. Kubernetes:
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

/// Names that cannot stand in a path are not looked for.
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

/// Whether the resource has the verb at all.
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
    let refused = Status::no_such_method;
    // The legacy routes are there to watch with GET, and for nothing else.
    if path.verb_in_path {
        let is_routed = verb == "watch" && path.subresource.is_empty() && has("watch");
        return match request.method == Method::GET {
            _ if !is_routed => Err(Status::no_such_resource()),
            true => Ok(()),
            false => Err(refused()),
        };
    }
    // Kubernetes: what has a part has a name, too, and an empty one is refused like any other that is wrong.
    if !path.subresource.is_empty() && path.name.is_empty() {
        let verb = if matches!(verb, "list" | "watch") {
            "get"
        } else {
            verb
        };
        return Err(if has(verb) {
            Status::bad_request("name must be provided")
        } else {
            refused()
        });
    }
    // All namespaces together are there to be listed, and for nothing else.
    if kind.is_namespaced() && !path.placed && !has("list") {
        return Err(Status::no_such_resource());
    }
    // Creating in no namespace in particular is not possible.
    let placed =
        verb != "create" || !path.subresource.is_empty() || !kind.is_namespaced() || path.placed;
    let whole = match verb {
        "create" => path.name.is_empty() || !path.subresource.is_empty(),
        "update" | "patch" => !path.name.is_empty(),
        _ => true,
    };
    let method = request.method.as_str();
    // A list that cannot be watched says so itself.
    let known = has(verb) || verb == "watch" && has("list");
    let possible = method != "HEAD" && placed && whole && known;
    let deletes_all = verb == "deletecollection" && kind.is_namespaced() && !path.placed;
    if possible && !deletes_all {
        return Ok(());
    }
    Err(refused())
}

impl<'a> Call<'a> {
    /// A request that the server itself makes.
    pub fn of_server(
        server: &'a Arc<Inner>,
        request: &'a Request,
        path: &'a ResourcePath,
        resource: &'a Resource,
        notes: &'a Warnings,
    ) -> Call<'a> {
        let until = Instant::now() + PATIENCE;
        Call {
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

impl Call<'_> {
    async fn dispatch(&self, verb: &str) -> Result<Answer, Status> {
        if let Some(own) = self.server.extensions.answers(self) {
            return own::answer(self, own, verb).await;
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
            (subresource, "get" | "update" | "patch") => self.through(subresource, verb).await,
            (subresource, _) => Err(not_here(subresource)),
        }
    }

    /// A subresource that is the object itself under rules of its own.
    async fn through(&self, subresource: &str, verb: &str) -> Result<Answer, Status> {
        let resource = self.server.catalog.subresource(self.resource, subresource);
        let resource = resource.ok_or_else(|| not_here(subresource))?;
        let call = Call {
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

    /// The object that the path names.
    pub fn key(&self) -> Key {
        Key::new(&self.path.namespace, &self.path.name)
    }

    /// Answers with an object.
    pub fn object(&self, object: &Object, code: u16) -> Result<Answer, Status> {
        self.check_include()?;
        self.check_listed(false)?;
        let renderer = self.renderer();
        Ok(self
            .request
            .record
            .writing(|| renderer.object(object, code)))
    }

    /// How this request wants objects rendered.
    pub(crate) fn renderer(&self) -> answer::Renderer<'_> {
        answer::Renderer {
            types: &self.server.types,
            resource: self.resource,
            accept: self.accept,
            include: self.request.query.text("includeObject"),
            now: self.server.registry.now(),
        }
    }

    /// Checks that metadata of a list is asked of a list, and of an object of an object.
    pub(crate) fn check_listed(&self, is_list: bool) -> Result<(), Status> {
        let Accept {
            form: answer::Form::Metadata(_),
            listed,
            ..
        } = self.accept
        else {
            return Ok(());
        };
        let found = go_type(self.resource, is_list);
        match (is_list, listed) {
            (true, false) => Err(answer::not_acceptable_because(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({found})"
            ))),
            (false, true) => Err(answer::not_acceptable_because(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({found})"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks how much of an object a table row should have.
    pub fn check_include(&self) -> Result<(), Status> {
        let include = self.request.query.text("includeObject");
        if matches!(self.accept.form, answer::Form::Table(_)) {
            if self.resource.kind().columns.is_empty() {
                return Err(answer::not_acceptable());
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
}

/// What upstream's server calls an object, or a list of them, in Go.
fn go_type(resource: &Resource, is_list: bool) -> String {
    let kind = resource.kind();
    let package = match kind.gvk.group.split('.').next().unwrap_or_default() {
        _ if resource.is_custom() => {
            return format!(
                "*unstructured.Unstructured{}",
                if is_list { "List" } else { "" }
            );
        }
        "" | "events" => "core",
        package => package,
    };
    format!(
        "*{package}.{}{}",
        kind.gvk.kind,
        if is_list { "List" } else { "" }
    )
}

/// A subresource that discovery names but that this server cannot do yet says so.
fn not_here(subresource: &str) -> Status {
    Status::failure(
        501,
        "NotImplemented",
        format!("the subresource {subresource} is not implemented by this server"),
    )
}

/// Checks that an object's namespace and name are those of the path, in this order; fills the namespace in.
pub(crate) fn check_name(path: &ResourcePath, object: &mut Value) -> Result<(), Status> {
    let metadata = object.entry("metadata");
    set_namespace(path, metadata)?;
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

/// Puts an object into the namespace of the path, or out of any.
pub fn set_namespace(path: &ResourcePath, metadata: &mut Value) -> Result<(), Status> {
    let namespace = metadata["namespace"].str();
    if namespace == path.namespace {
        return Ok(());
    }
    if path.namespace.is_empty() {
        metadata.remove("namespace");
    } else if namespace.is_empty() {
        metadata.set("namespace", &path.namespace);
    } else {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
