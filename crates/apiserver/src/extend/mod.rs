//! How do I make an API server of my own? Other kinds, and whatever of a server is not the same for all.
//!
//! [`Builder`] is where everything is put together, and [`Server::builder`] where it begins. Kinds are data; [`Hooks`]
//! convert, default and validate them. What needs to look around is [`Admit`]; what is not kept in the store is a
//! [`Storage`]; what can be asked below an object is a [`Below`]. All of them are told of a request by an [`Asked`].
//!
//! [`Hooks`]: mizzen_object::Hooks

mod admit;
mod asked;
mod below;
mod builder;
mod definition;
mod non_resource;
mod storage;

pub use admit::AdmissionPlugin;
pub(crate) use admit::{mutate, validate};
pub use asked::RequestInfo;
pub use below::SubresourceHandler;
pub use builder::{BuildError, Builder};
pub use non_resource::{NonResourceHandler, NonResourceRequest};
pub use storage::Storage;

pub use crate::catalog::{BuiltInKinds, SubresourceHooks};

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use mizzen_object::{GroupResource, Status};
use mizzen_registry::{BoxFuture, Resource};
use mizzen_value::{Str, json};

use crate::admission::WriteStrategy;
use crate::request::{Request, ResourcePath};
use crate::response::Response;
use crate::verbs::ResourceCall;
use crate::{Server, User};

/// What a server's author has added to it.
#[derive(Default)]
pub(crate) struct Extensions {
    admission: Vec<Arc<dyn AdmissionPlugin>>,
    answers: HashMap<(GroupResource, Str), Extension>,
    connections: HashMap<(GroupResource, Str), Handler>,
    write_strategies: Vec<Arc<dyn WriteStrategy>>,
    hints: Option<Arc<dyn Hints>>,
    state: Option<Arc<dyn Any + Send + Sync>>,
}

/// Answers a request about a resource or a subresource, with everything that the server knows of it.
pub type Handler = for<'a> fn(&'a ResourceCall<'a>) -> BoxFuture<'a, Result<Response, Status>>;

/// Warnings for clients that look for something that the server could serve but does not.
pub trait Hints: Send + Sync {
    /// For a request that found nothing.
    fn not_found(&self, request: &Request) -> Option<String>;

    /// For a list of CustomResourceDefinitions.
    fn list_definitions(&self, request: &Request) -> Option<String>;
}

/// Who answers instead of the registry.
#[derive(Clone)]
pub(crate) enum Extension {
    Storage(Arc<dyn Storage>),
    Below(Arc<dyn SubresourceHandler>),
    Handler(Handler),
}

impl Extensions {
    /// The storage or handler that answers a call instead of the registry.
    pub(crate) fn answers(&self, call: &ResourceCall) -> Option<&Extension> {
        if self.answers.is_empty() {
            return None;
        }
        self.answers.get(&(
            call.resource.kind().resource(),
            call.path.subresource.clone(),
        ))
    }

    /// The handler of a connection to what is behind an object, such as a pod's port.
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

    pub(crate) fn hints(&self) -> Option<&dyn Hints> {
        self.hints.as_deref()
    }

    /// What the composer of the server keeps with it.
    pub(crate) fn state<T: Any>(&self) -> Option<&T> {
        self.state.as_deref()?.downcast_ref()
    }

    /// Who has the objects of a call's resource, if it is not the store.
    pub(crate) fn storage(&self, call: &ResourceCall) -> Option<&dyn Storage> {
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
            (_, status) => Err(asked::refusal(&status)),
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
            _ => Err(asked::refusal(&object)),
        }
    }
}
