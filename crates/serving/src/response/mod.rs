//! Responses: content negotiation and rendering of objects, lists, tables and Statuses.

mod body;
mod compress;
mod list;
mod negotiate;
mod object;
mod table;

pub use body::{Body, FrameSource, ResponseLease, SharedMemory, TruncatedResponse};
pub use compress::compress;
pub use negotiate::{Accept, ResponseEncoding, ResponseForm, not_acceptable};
pub use negotiate::{
    AcceptClause, AggregatedDiscoveryAccept, ResponseOffer, clauses,
    negotiate_aggregated_discovery, negotiate_among, negotiate_document, negotiate_route,
    negotiate_status, not_acceptable_because, stream_not_acceptable,
};
pub use object::{Renderer, status_kind, status_value, value};
pub use object::{message, meta_kind, partial, status};
pub use table::{TableRenderer, single_row};

use bytes::Bytes;
use http::{HeaderValue, header};

/// An HTTP response.
pub type Response = http::Response<Body>;

/// A response with a body of a content type.
pub fn with_body(code: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = http::Response::new(body.into());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response in plain text.
pub fn text(code: u16, body: impl Into<Body>) -> Response {
    let mut answer = with_body(code, "text/plain; charset=utf-8", body);
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// The JSON of a response that is sent in another encoding, for the audit log.
#[derive(Clone)]
pub struct AuditJson(pub Bytes);

/// Renders a response. If the audit log needs its JSON and another encoding is sent, the JSON is added as [`AuditJson`].
fn with_audit_json(accept: Accept, make: impl Fn(Accept) -> Response) -> Response {
    let mut answer = make(Accept {
        audited: false,
        ..accept
    });
    if accept.audited && (accept.encoding != ResponseEncoding::Json || accept.pretty) {
        let plain = make(Accept {
            form: accept.form,
            ..Accept::JSON
        });
        let text = plain.into_body().into_bytes();
        text.and_then(|text| answer.extensions_mut().insert(AuditJson(text)));
    }
    answer
}

/// Adds `Warning` headers.
pub fn warn(answer: &mut Response, warnings: &[String]) {
    for warning in warnings {
        let quoted = mizzen_value::json::quote(warning);
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {quoted}")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}
