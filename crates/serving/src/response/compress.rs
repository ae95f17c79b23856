//! Gzip compression of large responses, while they are sent.

use std::io::Write as _;
use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::body::{Plain, SharedMemory};
use super::{Body, Response};

/// Responses smaller than this are not compressed, as upstream.
const SMALLEST: usize = 128 * 1024;
/// How much compressed output is collected before it is sent.
const CHUNK: usize = 32 * 1024;
/// How many chunks are compressed before the task yields: half a megabyte.
const READ_AT_ONCE: usize = 4;
/// The memory of a compressor and its output.
const STATE: u64 = 384 * 1024;
const IN_MEMORY: &str = "writing to memory does not fail";

/// Compresses a large response if the client accepts gzip.
pub fn compress(request: &HeaderMap, answer: Response) -> Response {
    let encoded = answer.headers().contains_key(header::CONTENT_ENCODING);
    // A range refers to the uncompressed document.
    let partial = answer.status() == StatusCode::PARTIAL_CONTENT;
    let accepts_gzip = || {
        let codings = mizzen_request::header::text(request, header::ACCEPT_ENCODING);
        codings.split(',').any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            parts.next() == Some("gzip") && !parts.any(|parameter| parameter == "q=0")
        })
    };
    let size = http_body::Body::size_hint(answer.body()).exact();
    let is_large = size.is_some_and(|size| size >= SMALLEST as u64);
    if encoded || partial || !is_large || answer.body().is_stream() || !accepts_gzip() {
        return answer;
    }
    let mut answer = answer.map(Body::compressed);
    answer
        .headers_mut()
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let varies = HeaderValue::from_static("Accept-Encoding");
    if !answer
        .headers()
        .get_all(header::VARY)
        .iter()
        .any(|known| *known == varies)
    {
        answer.headers_mut().append(header::VARY, varies);
    }
    answer
}

/// A body that is compressed while it is polled.
pub(super) struct Gzip {
    plain: Plain,
    /// `None` at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    pub(super) fn new(plain: Plain) -> Gzip {
        Gzip {
            plain,
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        }
    }

    pub(super) fn poll_next(&mut self, context: &mut Context) -> Poll<Option<Bytes>> {
        for _ in 0..READ_AT_ONCE {
            let Some(encoder) = &mut self.encoder else {
                return Poll::Ready(None);
            };
            match self.plain.next() {
                Some(bytes) => encoder.write_all(&bytes).expect(IN_MEMORY),
                None => {
                    let rest = self
                        .encoder
                        .take()
                        .map(|encoder| encoder.finish().expect(IN_MEMORY));
                    return Poll::Ready(rest.map(Bytes::from));
                }
            }
            if encoder.get_ref().len() >= CHUNK {
                return Poll::Ready(Some(mem::take(encoder.get_mut()).into()));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    pub(super) fn is_over(&self) -> bool {
        self.encoder.is_none()
    }

    pub(super) fn retained(&self) -> u64 {
        self.plain.retained() + STATE
    }

    pub(super) fn shared(&self) -> Option<SharedMemory> {
        self.plain.shared()
    }
}
