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

pub use admit::Admit;
pub(crate) use admit::{mutate, validate};
pub use asked::Asked;
pub use below::Below;
pub use builder::{BuildError, Builder};
pub use non_resource::{NonResourceHandler, NonResourceRequest};
pub use storage::Storage;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use mizzen_object::GroupResource;
use mizzen_value::{Str, json};

use crate::verbs::Call;
use crate::{Server, User};

/// What a server's author has added to it.
#[derive(Default)]
pub(crate) struct Extensions {
    admission: Vec<Arc<dyn Admit>>,
    answers: HashMap<(GroupResource, Str), Own>,
}

/// Who answers instead of the registry.
#[derive(Clone)]
pub(crate) enum Own {
    Storage(Arc<dyn Storage>),
    Below(Arc<dyn Below>),
}

impl Extensions {
    /// Who answers a call instead of the registry, if somebody does.
    pub(crate) fn answers(&self, call: &Call) -> Option<&Own> {
        if self.answers.is_empty() {
            return None;
        }
        self.answers.get(&(
            call.resource.kind().resource(),
            call.path.subresource.clone(),
        ))
    }

    /// Who has the objects of a call's resource, if it is not the store.
    pub(crate) fn storage(&self, call: &Call) -> Option<&dyn Storage> {
        match self
            .answers
            .get(&(call.resource.kind().resource(), Str::default()))
        {
            Some(Own::Storage(storage)) => Some(&**storage),
            _ => None,
        }
    }
}

impl Server {
    /// The object at a path, as whoever asks in the server's own name gets it:
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
