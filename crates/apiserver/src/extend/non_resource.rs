//! Handlers of non-resource paths.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use mizzen_registry::BoxFuture;

/// A request for a path that names no resource. Its user was authenticated and authorized.
///
/// ```
/// use bytes::Bytes;
/// use http::{HeaderMap, Method};
/// use mizzen_apiserver::NonResourceRequest;
///
/// /// The level of a `PUT /debug/flags/v`.
/// fn level(request: NonResourceRequest) -> Option<u8> {
///     let is_flag = request.method == Method::PUT && request.path == "/debug/flags/v";
///     is_flag.then(|| std::str::from_utf8(request.body).ok()?.trim().parse().ok())?
/// }
///
/// let (headers, body) = (HeaderMap::new(), Bytes::from("4\n"));
/// let request = NonResourceRequest {
///     method: &Method::PUT,
///     path: "/debug/flags/v",
///     query: "",
///     headers: &headers,
///     body: &body,
/// };
/// assert_eq!(level(request), Some(4));
/// ```
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
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use mizzen_apiserver::{NonResourceHandler, NonResourceRequest};
///
/// /// `/greeting`.
/// struct Greeting;
///
/// impl NonResourceHandler for Greeting {
///     async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
///         (request.path == "/greeting").then(|| Response::new("hello\n".into()))
///     }
///
///     fn listed_paths(&self) -> Vec<String> {
///         vec!["/greeting".into()]
///     }
/// }
/// ```
pub trait NonResourceHandler: Send + Sync {
    /// The response, or none if the path is not this handler's.
    fn serve(
        &self,
        request: NonResourceRequest<'_>,
    ) -> impl Future<Output = Option<Response<Bytes>>> + Send;

    /// The paths that the index at `/` lists.
    fn listed_paths(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Handlers of non-resource paths, in the order in which they run. Cheap to clone.
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use mizzen_apiserver::{NonResourceHandler, NonResourceHandlers, NonResourceRequest};
///
/// struct Greeting;
///
/// impl NonResourceHandler for Greeting {
///     async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
///         (request.path == "/greeting").then(|| Response::new("hello\n".into()))
///     }
///
///     fn listed_paths(&self) -> Vec<String> {
///         vec!["/greeting".into()]
///     }
/// }
///
/// let handlers = NonResourceHandlers::default().with(Greeting); // Options::non_resource_handlers
/// assert_eq!(format!("{handlers:?}"), r#"["/greeting"]"#);
/// ```
#[derive(Clone, Default)]
pub struct NonResourceHandlers(Vec<Arc<dyn ErasedNonResourceHandler>>);

impl NonResourceHandlers {
    /// The same with one more handler, after those that were added before.
    #[must_use]
    pub fn with(mut self, handler: impl NonResourceHandler + 'static) -> NonResourceHandlers {
        self.0.push(Arc::new(handler));
        self
    }

    /// The paths that the index at `/` lists.
    pub(crate) fn listed_paths(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|handler| handler.listed_paths())
    }

    /// The response of the first handler that has the path.
    pub(crate) async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
        for handler in &self.0 {
            if let Some(response) = handler.serve_boxed(request).await {
                return Some(response);
            }
        }
        None
    }
}

impl fmt::Debug for NonResourceHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.listed_paths()).finish()
    }
}

/// A [`NonResourceHandler`] of any type.
trait ErasedNonResourceHandler: Send + Sync {
    fn serve_boxed<'a>(
        &'a self,
        request: NonResourceRequest<'a>,
    ) -> BoxFuture<'a, Option<Response<Bytes>>>;

    fn listed_paths(&self) -> Vec<String>;
}

impl<T: NonResourceHandler> ErasedNonResourceHandler for T {
    fn serve_boxed<'a>(
        &'a self,
        request: NonResourceRequest<'a>,
    ) -> BoxFuture<'a, Option<Response<Bytes>>> {
        Box::pin(self.serve(request))
    }

    fn listed_paths(&self) -> Vec<String> {
        NonResourceHandler::listed_paths(self)
    }
}
