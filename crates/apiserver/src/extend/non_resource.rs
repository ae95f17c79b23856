//! Handlers of non-resource paths.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use mizzen_registry::BoxFuture;

/// A request for a path that names no resource. Its user was authenticated and authorized.
#[derive(Debug, Clone, Copy)]
pub struct NonResourceRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, decoded.
    pub path: &'a str,
    /// The query string.
    pub query: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a Bytes,
}

/// Serves some non-resource paths, such as `/debug/flags/v`.
pub trait NonResourceHandler: fmt::Debug + Send + Sync {
    /// The response, or none if the path is not this handler's.
    fn serve<'a>(
        &'a self,
        request: NonResourceRequest<'a>,
    ) -> BoxFuture<'a, Option<Response<Bytes>>>;

    /// The paths that the index at `/` lists.
    fn listed_paths(&self) -> Vec<String> {
        Vec::new()
    }
}
