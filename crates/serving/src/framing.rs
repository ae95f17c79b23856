//! Detects HTTP/1.1 requests with both `Content-Length` and `Transfer-Encoding`, and rewrites request lines.
//!
//! Two servers that disagree on which length counts see different requests on one connection (request smuggling). hyper uses
//! `Transfer-Encoding` and removes `Content-Length` before a handler sees the request, so the bytes of a connection are
//! scanned on their way to hyper. The scanner follows hyper's framing. Where hyper rejects the bytes, the connection ends
//! and the scanner's state does not matter.
//!
//! The request line is held back until it is complete, and rewritten (`request_line`; over HTTP/2: `http2_path`).
//!
//! Invariant: a head is scanned before hyper has parsed it, so [`Ambiguous::is_set`] is true when its request is handled.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::request_line;

/// Whether a request on a connection had both lengths. It stays set: the connection is closed.
#[derive(Debug, Clone, Default)]
pub struct Ambiguous(Arc<AtomicBool>);

impl Ambiguous {
    /// Whether there was such a request.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Rewrites the bytes of a connection on their way to hyper.
pub trait RewriteStream: Unpin {
    /// Scans bytes and returns their replacement, or `None` to leave them. Bytes that are held back come with later ones.
    fn scan(&mut self, bytes: &[u8]) -> Option<Vec<u8>>;

    /// The bytes that are still held back at the end.
    fn end(&mut self) -> Vec<u8>;
}

/// A connection whose bytes are rewritten as they are read.
pub struct RewrittenStream<S, R> {
    inner: S,
    scanner: R,
    /// Rewritten bytes that have not been read yet.
    pending: Vec<u8>,
}

impl<S, R> RewrittenStream<S, R> {
    /// Rewrites the bytes of `inner` by `scanner`.
    pub fn new(inner: S, scanner: R) -> RewrittenStream<S, R> {
        RewrittenStream {
            inner,
            scanner,
            pending: Vec::new(),
        }
    }
}

/// Where in a request the next byte is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    #[default]
    Head,
    /// In a body, with this many bytes left.
    Body(u64),
    ChunkSize,
    /// In a chunk, with this many bytes left, including the line end.
    Chunk(u64),
    Trailer,
    /// Nothing more is scanned.
    Unscanned,
}

/// Scans the requests of a connection over HTTP/1.1.
#[derive(Debug, Default)]
pub struct RequestScanner {
    state: ScanState,
    /// The current line.
    line: Vec<u8>,
    /// A complete request line, rewritten.
    request_line: Vec<u8>,
    max_head: usize,
    has_request_line: bool,
    length: Option<u64>,
    is_chunked: bool,
    /// Whether a request asked for an upgrade: the bytes after it are not HTTP and are not changed.
    is_upgraded: bool,
    ambiguous: Ambiguous,
}

impl RequestScanner {
    /// Scans heads of at most `max_head` bytes; larger ones hyper rejects.
    pub fn new(max_head: usize) -> (RequestScanner, Ambiguous) {
        let scanner = RequestScanner {
            max_head,
            ..RequestScanner::default()
        };
        let ambiguous = scanner.ambiguous.clone();
        (scanner, ambiguous)
    }
}

impl RewriteStream for RequestScanner {
    fn scan(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut rewritten, mut start) = (None::<Vec<u8>>, 0);
        while start < bytes.len() && self.state != ScanState::Unscanned {
            let (rest, is_begun) = (&bytes[start..], !self.line.is_empty());
            let in_request_line =
                self.state == ScanState::Head && !self.has_request_line && !self.is_upgraded;
            let used = match self.state {
                ScanState::Body(left) | ScanState::Chunk(left) => self.skip(left, rest.len()),
                _ => self.take_line(rest),
            };
            let line = std::mem::take(&mut self.request_line);
            if in_request_line && (is_begun || line != rest[..used]) {
                let out = rewritten.get_or_insert_with(|| bytes[..start].to_vec());
                out.extend(line);
            } else if let Some(out) = &mut rewritten {
                out.extend_from_slice(&rest[..used]);
            }
            start += used;
        }
        if let Some(out) = &mut rewritten {
            out.extend_from_slice(&bytes[start..]);
        }
        rewritten
    }

    fn end(&mut self) -> Vec<u8> {
        let is_held = self.state == ScanState::Head && !self.has_request_line && !self.is_upgraded;
        match is_held {
            true => std::mem::take(&mut self.line),
            false => Vec::new(),
        }
    }
}

impl RequestScanner {
    fn skip(&mut self, left: u64, available: usize) -> usize {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(available);
        let left = left - skipped as u64;
        self.state = match self.state {
            ScanState::Body(_) if left == 0 => ScanState::Head,
            ScanState::Body(_) => ScanState::Body(left),
            _ if left == 0 => ScanState::ChunkSize,
            _ => ScanState::Chunk(left),
        };
        skipped
    }

    fn take_line(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..used]);
        // In a trailer a lone LF is part of the line for hyper.
        let is_whole =
            end.is_some() && (self.state != ScanState::Trailer || self.line.ends_with(b"\r\n"));
        if self.line.len() > self.max_head {
            self.request_line = self.end();
            self.state = ScanState::Unscanned;
        } else if is_whole {
            let line = std::mem::take(&mut self.line);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            self.end_line(line.strip_suffix(b"\r").unwrap_or(line));
        }
        used
    }

    fn end_line(&mut self, line: &[u8]) {
        self.state = match self.state {
            ScanState::Head if !line.is_empty() && self.has_request_line => {
                self.header(line);
                ScanState::Head
            }
            ScanState::Head if line.is_empty() && self.has_request_line => self.end_head(),
            ScanState::Head => {
                self.has_request_line = !line.is_empty();
                if self.has_request_line {
                    self.request_line = request_line::rewrite(line);
                }
                self.request_line.extend_from_slice(b"\r\n");
                ScanState::Head
            }
            ScanState::ChunkSize => {
                // Hexadecimal digits, then extensions.
                let n_digits = line
                    .iter()
                    .take_while(|byte| byte.is_ascii_hexdigit())
                    .count();
                let digits = std::str::from_utf8(&line[..n_digits]).unwrap_or_default();
                match u64::from_str_radix(digits, 16) {
                    Ok(0) => ScanState::Trailer,
                    Ok(size) => size
                        .checked_add(2)
                        .map_or(ScanState::Unscanned, ScanState::Chunk),
                    Err(_) => ScanState::Unscanned,
                }
            }
            ScanState::Trailer if line.is_empty() => ScanState::Head,
            state => state,
        };
    }

    fn header(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let Some((name, value)) = text.split_once(':') else {
            return;
        };
        if name.eq_ignore_ascii_case("content-length") {
            self.length = Some(value.trim_matches([' ', '\t']).parse().unwrap_or_default());
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case("upgrade") {
            self.is_upgraded = true;
        }
    }

    fn end_head(&mut self) -> ScanState {
        self.has_request_line = false;
        match (self.length.take(), std::mem::take(&mut self.is_chunked)) {
            (Some(_), true) => {
                self.ambiguous.0.store(true, Ordering::Relaxed);
                ScanState::Unscanned
            }
            (None, true) => ScanState::ChunkSize,
            (Some(0) | None, false) => ScanState::Head,
            (Some(length), false) => ScanState::Body(length),
        }
    }
}

impl<S: AsyncRead + Unpin, R: RewriteStream> AsyncRead for RewrittenStream<S, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        into: &mut ReadBuf,
    ) -> Poll<io::Result<()>> {
        while self.pending.is_empty() {
            let before = into.filled().len();
            ready!(Pin::new(&mut self.inner).poll_read(context, into))?;
            let read = &into.filled()[before..];
            if read.is_empty() {
                // hyper gets the incomplete line.
                self.pending = self.scanner.end();
                match self.pending.is_empty() {
                    true => return Poll::Ready(Ok(())),
                    false => break,
                }
            }
            let Some(rewritten) = self.scanner.scan(read) else {
                return Poll::Ready(Ok(()));
            };
            into.set_filled(before);
            self.pending = rewritten;
        }
        let fits = self.pending.len().min(into.remaining());
        into.put_slice(&self.pending[..fits]);
        self.pending.drain(..fits);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, R: RewriteStream> AsyncWrite for RewrittenStream<S, R> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        slices: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a connection with these requests is ambiguous, however its bytes are split.
    #[track_caller]
    fn check(requests: &[&str], expected: bool) {
        let bytes = requests.concat();
        for size in [1, 2, 3, 7, bytes.len()] {
            let mut scanner = RequestScanner {
                max_head: 1024,
                ..RequestScanner::default()
            };
            bytes
                .as_bytes()
                .chunks(size)
                .for_each(|chunk| drop(scanner.scan(chunk)));
            assert_eq!(
                scanner.ambiguous.is_set(),
                expected,
                "{requests:?} in pieces of {size}"
            );
        }
    }

    const SIZED: &str = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde";
    const CHUNKED: &str = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
    const PLAIN: &str = "\r\nGET / HTTP/1.1\nhost: x\n\n";
    const BOTH: [&str; 2] = [
        "POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\nTransfer-Encoding:chunked\nContent-Length:\t5 \n\n",
    ];

    #[test]
    fn a_request_with_both_lengths_is_found_wherever_it_is() {
        for both in BOTH {
            check(&[both], true);
            check(&[SIZED, both], true);
            check(&[CHUNKED, both], true);
            check(&[PLAIN, CHUNKED, SIZED, PLAIN, both], true);
            let trailer = CHUNKED.replace("0\r\n\r\n", "0\r\nx: a\n\nb\r\n\r\n");
            check(&[&trailer, both], true);
        }
    }

    /// The bytes that hyper gets, however they are split.
    #[track_caller]
    fn check_rewritten(sent: &str, expected: &str) {
        for size in [1, 2, 3, 7, sent.len()] {
            let mut scanner = RequestScanner {
                max_head: 1024,
                ..RequestScanner::default()
            };
            let mut found = Vec::new();
            for chunk in sent.as_bytes().chunks(size) {
                found.extend(scanner.scan(chunk).unwrap_or_else(|| chunk.to_vec()));
            }
            found.extend(scanner.end());
            assert_eq!(
                String::from_utf8(found).unwrap(),
                expected,
                "in pieces of {size}"
            );
        }
    }

    #[test]
    fn request_lines_are_rewritten_and_nothing_else() {
        let unescaped = "G#T http://x/a#b HTTP/1.1\r\nx: #\r\n\r\n";
        let rewritten = "G#T /a%23b HTTP/1.1\r\nx: #\r\n\r\n";
        let hidden = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{unescaped}",
            unescaped.len()
        );
        check_rewritten(
            &[SIZED, unescaped, &hidden, unescaped, CHUNKED].concat(),
            &[SIZED, rewritten, &hidden, rewritten, CHUNKED].concat(),
        );
        check_rewritten(
            &[SIZED, "GET /a%z HTTP/1.1\r\n\r\n"].concat(),
            &[SIZED, "GET /% HTTP/1.1\r\n\r\n"].concat(),
        );
        // An incomplete line is not lost.
        check_rewritten("GET /#", "GET /#");
        let endless = "x".repeat(2000);
        check_rewritten(&endless, &endless);
    }

    #[test]
    fn nothing_is_rewritten_after_an_upgrade() {
        let unescaped = "G /a#b HTTP/1.1\r\n";
        let sent = format!(
            "{unescaped}Connection: Upgrade\r\nupgrade: websocket\r\n\r\n{unescaped}\u{1} #<>\n #"
        );
        check_rewritten(&sent, &sent.replacen("a#b", "a%23b", 1));
    }

    #[test]
    fn requests_with_one_length_or_none_are_not_ambiguous() {
        check(&[SIZED, CHUNKED, PLAIN, SIZED, CHUNKED], false);
        let hidden = format!(
            "POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}",
            BOTH[0].len(),
            BOTH[0]
        );
        check(&[&hidden, PLAIN], false);
    }
}
