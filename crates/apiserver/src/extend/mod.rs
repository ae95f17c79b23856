//! Custom API servers.
//!
//! [`Server::builder`] returns a [`Builder`]. Kinds are data; [`Hooks`] convert, default and validate them. An
//! [`AdmissionPlugin`] can read other objects, a [`WriteHook`] allocates for a write, a [`Storage`] replaces the store for a
//! resource, a [`SubresourceHandler`] serves a subresource, and a [`ConnectHandler`] one that upgrades the connection. Each
//! gets the [`RequestContext`]. Authors write `async fn`, and `?` turns any error into an [`Error`].
//!
//! [`Hooks`]: mizzen_object::Hooks

mod admission_plugin;
mod builder;
mod connect_handler;
mod definition;
mod error;
mod joined_hooks;
mod non_resource;
mod request_context;
mod round_trip;
mod storage;
mod subresource_handler;
mod write_hook;

pub use admission_plugin::AdmissionPlugin;
pub(crate) use admission_plugin::{mutate, validate};
pub use builder::{BuildError, Builder};
pub use connect_handler::{ConnectHandler, Connection, UpgradedStream};
pub(crate) use connect_handler::{ErasedConnectHandler, connect};
pub use error::Error;
pub use non_resource::{NonResourceHandler, NonResourceHandlers, NonResourceRequest};
pub use request_context::RequestContext;
pub(crate) use request_context::refusal;
pub use round_trip::{RoundTrip, RoundTripError};
pub use storage::Storage;
pub use subresource_handler::SubresourceHandler;
pub use write_hook::WriteHook;

pub(crate) use storage::ErasedStorage;
pub(crate) use subresource_handler::ErasedSubresourceHandler;

pub use crate::catalog::{BuiltInKinds, SubresourceHooks};

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use mizzen_object::{GroupResource, Status};
use mizzen_registry::{BoxFuture, Resource};
use mizzen_value::{Str, json};

use admission_plugin::ErasedAdmissionPlugin;

use crate::admission::WriteStrategy;
use crate::delegate::{MainServer, Upstream};
use crate::request::{Request, ResourcePath};
use crate::response::Response;
use crate::verbs::ResourceCall;
use crate::{Server, User};

/// The extensions of a server.
#[derive(Default)]
pub(crate) struct Extensions {
    admission: Vec<Arc<dyn ErasedAdmissionPlugin>>,
    answers: HashMap<(GroupResource, Str), Extension>,
    connections: HashMap<(GroupResource, Str), Handler>,
    write_strategies: Vec<Arc<dyn WriteStrategy>>,
    hints: Option<Arc<dyn Hints>>,
    state: Option<Arc<dyn Any + Send + Sync>>,
    /// The main server, if this one is behind it.
    pub(crate) main: Option<MainServer>,
}

/// Serves a resource or subresource, with access to the whole request.
///
/// ```
/// use mizzen_apiserver::extend::Handler;
/// use mizzen_apiserver::{Body, Server};
/// use mizzen_object::GroupResource;
/// # use std::sync::Arc;
/// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// # use mizzen_registry::{Registry, Store};
/// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
/// # const THING: &str = "
/// # metadata: {name: things.example.com}
/// # spec:
/// #   group: example.com
/// #   names: {plural: things, kind: Thing}
/// #   scope: Cluster
/// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
/// # ";
///
/// /// A thing is the text of its name, in capitals.
/// const SHOUT: Handler = |call| Box::pin(async move {
///     Ok(http::Response::new(Body::from(call.path.name.to_uppercase())))
/// });
///
/// const THINGS: GroupResource = GroupResource::new("example.com", "things");
///
/// let server = Server::builder(registry).definition(THING).handler(THINGS, "", SHOUT).build()?;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let admin = mizzen_apiserver::User::master("admin");
/// # let uri = "/apis/example.com/v1/things/one".parse().unwrap();
/// # let answer = server.call(Some(admin), http::Method::GET, uri, Default::default(), Default::default()).await;
/// # assert_eq!(answer.into_body().into_bytes().unwrap(), "ONE");
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Handler = for<'a> fn(&'a ResourceCall<'a>) -> BoxFuture<'a, Result<Response, Status>>;

/// Warnings for requests of resources that the server could serve but does not.
///
/// ```
/// use mizzen_apiserver::extend::Hints;
/// use mizzen_apiserver::request::Request;
///
/// struct Moved;
///
/// impl Hints for Moved {
///     fn not_found(&self, request: &Request) -> Option<String> {
///         let is_old = request.uri.path().starts_with("/apis/old.example.com");
///         is_old.then(|| "old.example.com is example.com now".into())
///     }
///
///     fn list_definitions(&self, _: &Request) -> Option<String> {
///         None
///     }
/// }
/// # drop(Moved);
/// ```
pub trait Hints: Send + Sync {
    /// For a request with 404.
    fn not_found(&self, request: &Request) -> Option<String>;

    /// For a list of CustomResourceDefinitions.
    fn list_definitions(&self, request: &Request) -> Option<String>;
}

/// What serves a resource instead of the registry.
#[derive(Clone)]
pub(crate) enum Extension {
    Storage(Arc<dyn ErasedStorage>),
    Subresource(Arc<dyn ErasedSubresourceHandler>),
    Connect(Arc<dyn ErasedConnectHandler>),
    Handler(Handler),
}

impl Extensions {
    /// The storage or handler of a call, if it is not the registry.
    pub(crate) fn answers(&self, call: &ResourceCall) -> Option<&Extension> {
        if self.answers.is_empty() {
            return None;
        }
        self.answers.get(&(
            call.resource.kind().resource(),
            call.path.subresource.clone(),
        ))
    }

    /// The handler of a CONNECT subresource, such as `proxy`.
    pub(crate) fn connection(&self, resource: &Resource, path: &ResourcePath) -> Option<Handler> {
        let is_connection = !path.subresource.is_empty()
            && !path.name.is_empty()
            && !path.verb_in_path
            && !resource.is_custom()
            && path.has_namespace == resource.kind().is_namespaced();
        if !is_connection || self.connections.is_empty() {
            return None;
        }
        let key = (resource.kind().resource(), path.subresource.clone());
        self.connections.get(&key).copied()
    }

    pub(crate) fn write_strategies(&self) -> &[Arc<dyn WriteStrategy>] {
        &self.write_strategies
    }

    /// The main server, if it is another process.
    pub(crate) fn upstream(&self) -> Option<&Upstream> {
        match &self.main {
            Some(MainServer::Remote(upstream)) => Some(upstream),
            _ => None,
        }
    }

    pub(crate) fn hints(&self) -> Option<&dyn Hints> {
        self.hints.as_deref()
    }

    /// The state that was given to the builder.
    pub(crate) fn state<T: Any>(&self) -> Option<&T> {
        self.state.as_deref()?.downcast_ref()
    }

    /// The storage of the resource of a call, if it is not the store.
    pub(crate) fn storage(&self, call: &ResourceCall) -> Option<&dyn ErasedStorage> {
        match self
            .answers
            .get(&(call.resource.kind().resource(), Str::default()))
        {
            Some(Extension::Storage(storage)) => Some(&**storage),
            _ => None,
        }
    }
}

impl Server {
    /// The object at a path, read as the server itself:
    /// `/apis/example.com/v1/namespaces/default/things/one`.
    pub async fn read(&self, path: &str) -> Result<mizzen_value::Value, mizzen_object::Status> {
        match self.ask("GET", path, None).await {
            (200, object) => Ok(object),
            (_, status) => Err(refusal(&status)),
        }
    }

    /// The object at a path, as `user` gets it.
    pub async fn read_as(
        &self,
        user: User,
        path: &str,
    ) -> Result<mizzen_value::Value, mizzen_object::Status> {
        let uri = path
            .parse()
            .map_err(|error| mizzen_object::Status::bad_request(format!("{path}: {error}")))?;
        let answer = self
            .call(Some(user), Method::GET, uri, HeaderMap::new(), Bytes::new())
            .await;
        let code = answer.status();
        let text = answer.into_body().into_bytes().unwrap_or_default();
        let object = json::parse(&text).unwrap_or_default();
        match code.as_u16() {
            200 => Ok(object),
            _ => Err(refusal(&object)),
        }
    }
}
