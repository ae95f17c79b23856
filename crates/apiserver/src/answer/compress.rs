//! Compressing answers for clients that ask for it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};

use super::{Answer, Body};

/// Answers smaller than this are sent as they are, as upstream does.
const SMALLEST: usize = 128 * 1024;

/// Compresses a large answer if the client accepts gzip.
pub(crate) fn compress(request: &HeaderMap, answer: Answer) -> Answer {
    let encoded = answer.headers().contains_key(header::CONTENT_ENCODING);
    if encoded || !accepts_gzip(request) || !is_large(answer.body()) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    match body.into_bytes() {
        Err(stream) => Answer::from_parts(head, stream),
        Ok(bytes) => {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            Answer::from_parts(head, Body::from(gzip(&bytes)))
        }
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    crate::header::text(headers, header::ACCEPT_ENCODING).split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|parameter| parameter == "q=0")
    })
}

fn is_large(body: &Body) -> bool {
    http_body::Body::size_hint(body).exact().is_some_and(|size| size >= SMALLEST as u64)
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).expect("writing to memory does not fail");
    encoder.finish().expect("writing to memory does not fail").into()
}
