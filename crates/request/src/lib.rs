//! What a request to a Kubernetes API server asks for.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`RequestInfo`] | Which verb, resource and object do method, path and query name? |
//! | [`RequestQuery`] | What do the query parameters say, by Go's rules? |
//! | [`Attributes`] | What do authorizers, audit policies and flow schemas see of it? |
//! | [`header`] | What is the text of a header? |
//!
//! ```
//! use http::{Method, Uri};
//! use mizzen_object::User;
//! use mizzen_request::{Attributes, RequestInfo, RequestQuery};
//!
//! let uri: Uri = "/apis/apps/v1/namespaces/web/deployments/shop/scale".parse().unwrap();
//! let query = RequestQuery::parse(&uri);
//! let info = RequestInfo::new(&Method::PUT, &uri, &query).unwrap();
//! let path = info.resource().unwrap();
//! assert_eq!((info.verb(), &*path.resource, &*path.subresource), ("update", "deployments", "scale"));
//!
//! let user = User::service_account("web", "autoscaler");
//! assert!(!Attributes::of_request(&user, &info, &query).is_long_running());
//! ```

mod attributes;
pub mod header;
mod info;
mod query;

pub use attributes::{Attributes, AttributesTarget, ResourceAttributes};
pub use info::{MissingResource, RequestInfo, RequestTarget, ResourcePath};
pub use query::RequestQuery;
