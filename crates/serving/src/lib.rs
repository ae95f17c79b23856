//! Responses and connections of a Kubernetes API server.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`response`] | In which encoding and form does a client get objects, lists, tables and Statuses? |
//! | [`MetaSchemas`] | What do Status, DeleteOptions and discovery documents look like? |
//! | [`request_line`], [`RequestScanner`], [`PathScanner`] | Which request lines and paths does Go's server accept? |
//! | [`ConnectionTracker`], [`FrameBudget`] | When is a connection idle, stalled, or abused? |
//! | [`Unsent`] | How much memory do unread responses take? |
//! | [`Coalesce`], [`CloseNotify`], [`WholeBody`] | How are bytes written, connections ended, bodies read? |
//!
//! The listener is in `mizzen-apiserver`, which joins them.
//!
//! ```
//! use http::HeaderMap;
//! use mizzen_request::RequestQuery;
//! use mizzen_serving::request_line;
//! use mizzen_serving::response::{ResponseEncoding, negotiate_status, text};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("accept", "application/yaml".parse().unwrap());
//! let accept = negotiate_status(&headers, &RequestQuery::default());
//! assert_eq!(accept.encoding, ResponseEncoding::Yaml);
//!
//! assert_eq!(text(429, "later").status(), 429);
//! assert!(request_line::fault(&"/api/v1/pods".parse().unwrap()).is_none());
//! ```

mod close_notify;
mod coalesce;
mod connection_limits;
mod frame_budget;
mod framing;
mod http2_path;
mod inspect;
mod meta_schemas;
mod request_body;
pub mod request_line;
pub mod response;
mod unsent;

pub use close_notify::{CloseNotify, LingerFlag};
pub use coalesce::Coalesce;
pub use connection_limits::{Cancelled, CloseReason, ConnectionTracker, HeadTimer, TrackedBody};
pub use frame_budget::FrameBudget;
pub use framing::{Ambiguous, RequestScanner, RewriteStream, RewrittenStream};
pub use http2_path::PathScanner;
pub use inspect::{InspectBytes, InspectedStream};
pub use meta_schemas::MetaSchemas;
pub use request_body::{UnreadBody, WholeBody};
pub use unsent::{ConnectionAccount, Unsent, UnsentLimits};
