//! Compressing answers for clients that ask for it, while they read.

use std::io::Write as _;
use std::mem;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::body::{Plain, Shared};
use super::{Answer, Body};

/// Answers smaller than this are sent as they are, as upstream does.
const SMALLEST: usize = 128 * 1024;
/// How much is compressed before it is handed out.
const CHUNK: usize = 32 * 1024;
/// How many chunks are read before others get a turn: half a megabyte.
const READ_AT_ONCE: usize = 4;
/// The memory of a compressor, and of what it has written.
const STATE: u64 = 384 * 1024;
const IN_MEMORY: &str = "writing to memory does not fail";

/// Compresses a large answer if the client accepts gzip.
pub(crate) fn compress(request: &HeaderMap, answer: Answer) -> Answer {
    let encoded = answer.headers().contains_key(header::CONTENT_ENCODING);
    // A range is of the document as it is.
    let partial = answer.status() == StatusCode::PARTIAL_CONTENT;
    if encoded || partial || !accepts_gzip(request) || !is_large(answer.body()) {
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

fn accepts_gzip(headers: &HeaderMap) -> bool {
    crate::header::text(headers, header::ACCEPT_ENCODING)
        .split(',')
        .any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            parts.next() == Some("gzip") && !parts.any(|parameter| parameter == "q=0")
        })
}

fn is_large(body: &Body) -> bool {
    let size = http_body::Body::size_hint(body).exact();
    !body.is_stream() && size.is_some_and(|size| size >= SMALLEST as u64)
}

/// A body that is compressed as far as it is read.
pub(super) struct Gzip {
    plain: Plain,
    /// None when all has been handed out.
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

    pub(super) fn shared(&self) -> Option<Shared> {
        self.plain.shared()
    }
}
