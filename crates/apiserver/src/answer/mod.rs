//! What goes back: the form that the client asked for, and the bytes.

mod body;
mod compress;
mod list;
mod negotiate;
mod object;
mod table;

pub use body::{Body, Broken};
pub(crate) use body::{Lease, Shared, Source};
pub(crate) use compress::compress;
pub use list::list;
pub use negotiate::{Accept, Encoding, Form, not_acceptable};
pub(crate) use negotiate::{
    Clause, Offer, clauses, negotiate_aggregated_discovery, negotiate_among, negotiate_document,
    negotiate_route, negotiate_status, no_stream, not_that,
};
pub(crate) use object::{message, meta_kind, partial, status};
pub use object::{object, status_kind, value};
pub(crate) use table::{Table, single};

use bytes::Bytes;
use http::{HeaderValue, Response, header};

/// An answer.
pub type Answer = Response<Body>;

/// An answer with a body of a known type.
pub fn answer(code: u16, content_type: &'static str, body: impl Into<Body>) -> Answer {
    let mut response = Response::new(body.into());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer in plain text.
pub fn text(code: u16, body: impl Into<Body>) -> Answer {
    let mut answer = answer(code, "text/plain; charset=utf-8", body);
    answer.headers_mut().insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// The JSON of an answer that is sent in another form.
#[derive(Clone)]
pub(crate) struct Text(pub Bytes);

/// Makes an answer, and keeps its JSON beside it if that is wanted and not what is sent.
fn keeping(accept: Accept, make: impl Fn(Accept) -> Answer) -> Answer {
    let mut answer = make(Accept {
        kept: false,
        ..accept
    });
    if accept.kept && (accept.encoding != Encoding::Json || accept.pretty) {
        let plain = make(Accept {
            form: accept.form,
            ..Accept::JSON
        });
        let text = plain.into_body().into_bytes();
        text.and_then(|text| answer.extensions_mut().insert(Text(text)));
    }
    answer
}

/// Tells the client something that is no error.
pub(crate) fn warn(answer: &mut Answer, warnings: &[String]) {
    for warning in warnings {
        let quoted = mizzen_value::json::quote(warning);
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {quoted}")) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}
