//! The links of HTML pages that a proxied server answers with, rewritten while the page is relayed.
//!
//! Only the values of attributes with URLs change; everything else, comments and scripts included, stays byte for byte. A
//! compressed page is decompressed and compressed again. Kubernetes: apimachinery/pkg/util/proxy/transport.go, `rewriteHTML`.
//!
//! Invariant: what is held of a page is at most one tag of [`MAX_TAG`] bytes and one chunk; a longer tag stays as it is.

use std::io::{self, Write};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{
    DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder, ZlibDecoder, ZlibEncoder,
};
use http::{HeaderMap, header};
use http_body::Body as _;
use hyper::body::Incoming;
use mizzen_apiserver::response::{Body, FrameSource};

use super::proxy_links::LinkRewriter;

/// The longest tag whose links are rewritten.
const MAX_TAG: usize = 64 * 1024;
/// The longest name of an element that is of interest, such as `blockquote`.
const MAX_NAME: usize = 16;
/// How much of a compressed page is decompressed at a time: a thousandth of what it may expand to.
const PIECE: usize = 4 * 1024;
/// Elements whose content is text without tags. Kubernetes: golang.org/x/net/html, token.go.
const RAW_TEXT: [&str; 10] = [
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
];

/// The attributes of an element that have URLs.
fn url_attributes(element: &[u8]) -> &'static [&'static str] {
    match element {
        b"a" | b"area" | b"base" | b"link" => &["href"],
        b"applet" => &["codebase"],
        b"audio" | b"embed" | b"script" | b"source" => &["src"],
        b"blockquote" | b"del" | b"ins" | b"q" => &["cite"],
        b"body" => &["background"],
        b"button" => &["formaction"],
        b"command" => &["icon"],
        b"form" => &["action"],
        b"frame" | b"iframe" => &["longdesc", "src"],
        b"head" => &["profile"],
        b"html" => &["manifest"],
        b"img" => &["longdesc", "src", "usemap"],
        b"input" => &["src", "usemap", "formaction"],
        b"object" => &["classid", "codebase", "data", "usemap"],
        b"video" => &["poster", "src"],
        _ => &[],
    }
}

/// How a page is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageEncoding {
    Identity,
    Gzip,
    /// With or without the header of zlib, which servers disagree about.
    Deflate,
}

impl PageEncoding {
    /// The encoding of a response that is a page; `None` for any other response, and for an unknown encoding.
    pub(super) fn of(headers: &HeaderMap) -> Option<PageEncoding> {
        let text = |name| {
            headers
                .get(name)
                .map_or(Some(""), |value| value.to_str().ok())
        };
        let content_type = text(header::CONTENT_TYPE)?.split(';').next()?.trim();
        if content_type != "text/html" {
            return None;
        }
        match text(header::CONTENT_ENCODING)? {
            "" => Some(PageEncoding::Identity),
            "gzip" => Some(PageEncoding::Gzip),
            "deflate" => Some(PageEncoding::Deflate),
            encoding => {
                tracing::warn!(
                    encoding,
                    "unknown encoding of a proxied page, its links stay"
                );
                None
            }
        }
    }
}

/// A page with its links rewritten, as it arrives.
pub(super) fn page(body: Incoming, encoding: PageEncoding, links: LinkRewriter) -> Body {
    Body::stream(Page {
        body,
        pending: Bytes::new(),
        filter: PageFilter::new(encoding, links),
        end: None,
    })
}

/// The body of a page.
struct Page {
    body: Incoming,
    /// What has arrived and is not rewritten yet.
    pending: Bytes,
    filter: PageFilter,
    end: Option<PageEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageEnd {
    Whole,
    Truncated,
}

impl FrameSource for Page {
    fn poll_next(self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>> {
        let page = self.get_mut();
        while page.end.is_none() {
            let written = if !page.pending.is_empty() {
                let piece = page.pending.split_to(page.pending.len().min(PIECE));
                page.filter.write(&piece)
            } else {
                match ready!(Pin::new(&mut page.body).poll_frame(context)) {
                    Some(Ok(frame)) => {
                        page.pending = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Some(Err(error)) => Err(io::Error::other(error)),
                    None => {
                        page.end = Some(PageEnd::Whole);
                        page.filter.finish()
                    }
                }
            };
            match written {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(bytes.into())),
                Err(error) => {
                    tracing::warn!(%error, "a proxied page ended early");
                    page.end = Some(PageEnd::Truncated);
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_truncated(&self) -> bool {
        self.end == Some(PageEnd::Truncated)
    }
}

/// Rewrites the links of a page, compressed or not.
struct PageFilter {
    encoding: PageEncoding,
    /// `None` for a page that is not compressed, and before its first byte.
    coding: Option<Coding>,
    html: HtmlRewriter,
}

/// Decompresses and compresses a page.
struct Coding {
    decoder: Box<dyn Coder>,
    encoder: Box<dyn Coder>,
}

/// One direction of a compression.
trait Coder: Write + Send {
    /// What was written, and not taken yet.
    fn output(&mut self) -> &mut Vec<u8>;
    /// Writes what is left.
    fn end(&mut self) -> io::Result<()>;
}

macro_rules! coders {
    ($($coder:ident),*) => {
        $(impl Coder for $coder<Vec<u8>> {
            fn output(&mut self) -> &mut Vec<u8> {
                self.get_mut()
            }

            fn end(&mut self) -> io::Result<()> {
                self.try_finish()
            }
        })*
    };
}

coders!(
    DeflateDecoder,
    DeflateEncoder,
    GzEncoder,
    MultiGzDecoder,
    ZlibDecoder,
    ZlibEncoder
);

impl Coding {
    /// The coding of a page with this first byte.
    fn new(encoding: PageEncoding, first: u8) -> Option<Coding> {
        let level = Compression::default();
        // RFC 1950: the lower half of the first byte is the method.
        let has_zlib_header = first & 0x0f == 8;
        let (decoder, encoder): (Box<dyn Coder>, Box<dyn Coder>) = match encoding {
            PageEncoding::Identity => return None,
            PageEncoding::Gzip => (
                Box::new(MultiGzDecoder::new(Vec::new())),
                Box::new(GzEncoder::new(Vec::new(), level)),
            ),
            PageEncoding::Deflate if has_zlib_header => (
                Box::new(ZlibDecoder::new(Vec::new())),
                Box::new(ZlibEncoder::new(Vec::new(), level)),
            ),
            PageEncoding::Deflate => (
                Box::new(DeflateDecoder::new(Vec::new())),
                Box::new(DeflateEncoder::new(Vec::new(), level)),
            ),
        };
        Some(Coding { decoder, encoder })
    }
}

impl PageFilter {
    fn new(encoding: PageEncoding, links: LinkRewriter) -> PageFilter {
        PageFilter {
            encoding,
            coding: None,
            html: HtmlRewriter::new(links),
        }
    }

    /// The next bytes of the page, for these of the original.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        if self.coding.is_none()
            && let Some(first) = bytes.first()
        {
            self.coding = Coding::new(self.encoding, *first);
        }
        let mut out = Vec::new();
        let Some(coding) = &mut self.coding else {
            self.html.push(bytes, &mut out);
            return Ok(out);
        };
        coding.decoder.write_all(bytes)?;
        self.html
            .push(&std::mem::take(coding.decoder.output()), &mut out);
        coding.encoder.write_all(&out)?;
        Ok(std::mem::take(coding.encoder.output()))
    }

    /// The last bytes of the page.
    fn finish(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let Some(coding) = &mut self.coding else {
            self.html.finish(&mut out);
            return Ok(out);
        };
        coding.decoder.end()?;
        self.html
            .push(&std::mem::take(coding.decoder.output()), &mut out);
        self.html.finish(&mut out);
        coding.encoder.write_all(&out)?;
        coding.encoder.end()?;
        Ok(std::mem::take(coding.encoder.output()))
    }
}

/// Rewrites the links of HTML, byte by byte.
struct HtmlRewriter {
    links: LinkRewriter,
    state: HtmlState,
    /// The current start tag, after its `<`.
    tag: Vec<u8>,
    /// The name of the last start tag, in lower case.
    element: Vec<u8>,
    /// The name of the current attribute, and the start of its value, in `tag`.
    attribute: Range<usize>,
    value: usize,
    /// The values in `tag` that are URLs.
    urls: Vec<Range<usize>>,
    /// Whether the current start tag is too long to be held.
    is_oversized: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HtmlState {
    Text,
    /// After `<`.
    Open,
    StartTag(TagState),
    /// After `<!` and so many dashes.
    Declaration(u8),
    /// In a comment, after so many dashes.
    Comment(u8),
    /// Before the next `>`.
    Skipped,
    /// In an element without tags, after so many bytes of its end tag.
    RawText(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagState {
    Name,
    Between,
    AttributeName,
    AfterName,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c)
}

impl HtmlRewriter {
    fn new(links: LinkRewriter) -> HtmlRewriter {
        HtmlRewriter {
            links,
            state: HtmlState::Text,
            tag: Vec::new(),
            element: Vec::new(),
            attribute: 0..0,
            value: 0,
            urls: Vec::new(),
            is_oversized: false,
        }
    }

    fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        for byte in input {
            match self.state {
                HtmlState::StartTag(state) => self.tag_byte(state, *byte, out),
                HtmlState::Open if byte.is_ascii_alphabetic() => {
                    self.element.clear();
                    self.is_oversized = false;
                    self.tag_byte(TagState::Name, *byte, out);
                }
                state => {
                    out.push(*byte);
                    self.state = self.after(state, *byte);
                }
            }
        }
    }

    /// Writes what is held at the end of the page.
    fn finish(&mut self, out: &mut Vec<u8>) {
        self.write_tag(out);
    }

    /// The state after a byte outside of start tags.
    fn after(&self, state: HtmlState, byte: u8) -> HtmlState {
        match (state, byte) {
            (HtmlState::Text | HtmlState::Open, b'<') => HtmlState::Open,
            (HtmlState::Open, b'!') => HtmlState::Declaration(0),
            (HtmlState::Open, b'/' | b'?') => HtmlState::Skipped,
            (HtmlState::Text | HtmlState::Open, _) => HtmlState::Text,
            (HtmlState::Declaration(0), b'-') => HtmlState::Declaration(1),
            // The dashes of `<!-->` open and close a comment.
            (HtmlState::Declaration(1), b'-') => HtmlState::Comment(2),
            (HtmlState::Declaration(_) | HtmlState::Skipped, b'>') => HtmlState::Text,
            (HtmlState::Declaration(_) | HtmlState::Skipped, _) => HtmlState::Skipped,
            (HtmlState::Comment(2..), b'>') => HtmlState::Text,
            (HtmlState::Comment(dashes), b'-') => HtmlState::Comment((dashes + 1).min(2)),
            (HtmlState::Comment(_), _) => HtmlState::Comment(0),
            (HtmlState::RawText(matched), byte) => self.after_raw(matched, byte),
            (state @ HtmlState::StartTag(_), _) => state,
        }
    }

    /// The state after a byte of an element without tags.
    fn after_raw(&self, matched: usize, byte: u8) -> HtmlState {
        let expected = match matched {
            0 => Some(&b'<'),
            1 => Some(&b'/'),
            n => self.element.get(n - 2),
        };
        match (expected, byte) {
            _ if self.element == b"plaintext" => HtmlState::RawText(0),
            (None, b'>') => HtmlState::Text,
            (None, b'/') => HtmlState::Skipped,
            (None, byte) if is_space(byte) => HtmlState::Skipped,
            (Some(expected), byte) if byte.to_ascii_lowercase() == *expected => {
                HtmlState::RawText(matched + 1)
            }
            (_, b'<') => HtmlState::RawText(1),
            _ => HtmlState::RawText(0),
        }
    }

    /// Reads a byte of a start tag. Kubernetes: golang.org/x/net/html, token.go, `readTag`.
    fn tag_byte(&mut self, state: TagState, byte: u8, out: &mut Vec<u8>) {
        let at = self.tag.len();
        let is_last = byte == b'>' && !matches!(state, TagState::Quoted(_));
        let next = match (state, byte) {
            (TagState::Quoted(quote), byte) if byte == quote => {
                self.note_url(at);
                TagState::Between
            }
            (TagState::Quoted(_), _) => state,
            (TagState::Unquoted, byte) if is_space(byte) || is_last => {
                self.note_url(at);
                TagState::Between
            }
            (TagState::Unquoted, _) => state,
            (TagState::BeforeValue, b'"' | b'\'') => {
                self.value = at + 1;
                TagState::Quoted(byte)
            }
            (TagState::BeforeValue, byte) if is_space(byte) || is_last => state,
            (TagState::BeforeValue, _) => {
                self.value = at;
                TagState::Unquoted
            }
            (TagState::AttributeName | TagState::AfterName, b'=') => TagState::BeforeValue,
            (TagState::AttributeName | TagState::AfterName, byte) if is_space(byte) => {
                TagState::AfterName
            }
            (_, byte) if is_space(byte) || byte == b'/' || is_last => TagState::Between,
            (TagState::Name, byte) => {
                if self.element.len() <= MAX_NAME {
                    self.element.push(byte.to_ascii_lowercase());
                }
                state
            }
            (TagState::AttributeName, _) => {
                self.attribute.end = at + 1;
                state
            }
            (TagState::Between | TagState::AfterName, _) => {
                self.attribute = at..at + 1;
                TagState::AttributeName
            }
        };
        self.state = HtmlState::StartTag(next);
        self.tag.push(byte);
        self.is_oversized |= self.tag.len() > MAX_TAG;
        if is_last || self.is_oversized {
            self.write_tag(out);
        }
        if is_last {
            let has_tags = !RAW_TEXT.iter().any(|name| name.as_bytes() == self.element);
            self.state = match has_tags {
                true => HtmlState::Text,
                false => HtmlState::RawText(0),
            };
        }
    }

    /// Notes the value before `end`, if it is a URL.
    fn note_url(&mut self, end: usize) {
        if self.is_oversized {
            return;
        }
        let name = &self.tag[self.attribute.clone()];
        let mut known = url_attributes(&self.element).iter();
        if known.any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
            self.urls.push(self.value..end);
        }
    }

    /// Writes what is held of a start tag. What is no URL stays as it is.
    fn write_tag(&mut self, out: &mut Vec<u8>) {
        let mut from = 0;
        for url in self.urls.drain(..) {
            let text = std::str::from_utf8(&self.tag[url.clone()]).ok();
            if let Some(rewritten) = text.and_then(|text| self.links.rewrite(text).ok()) {
                out.extend_from_slice(&self.tag[from..url.start]);
                out.extend_from_slice(rewritten.as_bytes());
                from = url.end;
            }
        }
        out.extend_from_slice(&self.tag[from..]);
        self.tag.clear();
    }
}

#[cfg(test)]
mod tests {
    use flate2::read;
    use http::HeaderValue;

    use super::*;

    const PROXY: &str = "/api/v1/namespaces/a/pods/p/proxy";

    fn links() -> LinkRewriter {
        let requested = format!("{PROXY}/x");
        LinkRewriter::new(&requested, "/x", "10.0.0.9:80".into(), "example.com")
    }

    fn rewrite(pieces: impl Iterator<Item = impl AsRef<[u8]>>) -> String {
        let (mut html, mut out) = (HtmlRewriter::new(links()), Vec::new());
        for piece in pieces {
            html.push(piece.as_ref(), &mut out);
        }
        html.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    /// Rewrites a page, at once and byte by byte.
    #[track_caller]
    fn check(page: &str, expected: &str) {
        let expected = expected.replace("PROXY", PROXY);
        assert_eq!(rewrite([page].into_iter()), expected, "{page}");
        assert_eq!(rewrite(page.bytes().map(|byte| [byte])), expected, "{page}");
    }

    #[test]
    fn attributes_with_urls_are_rewritten() {
        for (page, expected) in [
            (
                r#"<pre><a href="a.log">a</a><a href="/b.log">b</a></pre>"#,
                r#"<pre><a href="a.log">a</a><a href="PROXY/b.log">b</a></pre>"#,
            ),
            (r#"<img src="/x.jpg"/>"#, r#"<img src="PROXY/x.jpg"/>"#),
            ("<img src='/x' alt='/y'>", "<img src='PROXY/x' alt='/y'>"),
            ("<A\nHREF = /x class=c>", "<A\nHREF = PROXY/x class=c>"),
            ("<a href=/x>", "<a href=PROXY/x>"),
            ("<a href=/x/>", "<a href=PROXY/x/>"),
            (
                "<a title='a > b' href=\"/x\">",
                "<a title='a > b' href=\"PROXY/x\">",
            ),
            ("<a =href href=/x>", "<a =href href=PROXY/x>"),
            ("<a disabled/href=/x>", "<a disabled/href=PROXY/x>"),
            (
                r#"<a href="/x?a=1&amp;b=2#c">"#,
                r#"<a href="PROXY/x?a=1&amp;b=2#c">"#,
            ),
            (
                r#"<a href="http://10.0.0.9:80/x">"#,
                r#"<a href="PROXY/x">"#,
            ),
            (
                r#"<a href="http://google.com/x">"#,
                r#"<a href="http://google.com/x">"#,
            ),
            (
                "<img usemap='/a' longdesc='/b' src='/c'>",
                "<img usemap='PROXY/a' longdesc='PROXY/b' src='PROXY/c'>",
            ),
            (
                "<form action=/a><button formaction=/b>",
                "<form action=PROXY/a><button formaction=PROXY/b>",
            ),
            // Attributes and elements without URLs, and what is no URL.
            ("<a src=/x><p href=/x>", "<a src=/x><p href=/x>"),
            ("<a href=\"/%zz\"><a href>", "<a href=\"/%zz\"><a href>"),
            ("<abbr href=/x>", "<abbr href=/x>"),
        ] {
            check(page, expected);
        }
    }

    #[test]
    fn everything_else_stays() {
        for page in [
            "",
            "a < b <3 <> </> <",
            "</a href=/x>",
            "<!doctype html>",
            "<!-- <a href=/x> -- > <a href='/x'> -->",
            "<!--->",
            "<!-x <a href=/x>",
            "<?xml <a href=/x",
            "<script>if (a<b) '<a href=\"/x\">' </scrip> </script",
            "<STYLE><a href=/x></Style >",
            "<textarea><a href=/x></textarea/><title><a href=/x></title>",
            "<plaintext></plaintext><a href=/x>",
            "<a href=\"/unfinished",
            "\u{e9} <p title=\u{e9}>",
        ] {
            check(page, page);
        }
        for (page, expected) in [
            ("<!-- --><a href=/x>", "<!-- --><a href=PROXY/x>"),
            ("<!--><a href=/x>", "<!--><a href=PROXY/x>"),
            (
                "<!doctype html><a href=/x>",
                "<!doctype html><a href=PROXY/x>",
            ),
            ("<<a href=/x>", "<<a href=PROXY/x>"),
            (
                "<script src=/s></script><a href=/x>",
                "<script src=PROXY/s></script><a href=PROXY/x>",
            ),
            (
                "<style></style ><a href=/x>",
                "<style></style ><a href=PROXY/x>",
            ),
        ] {
            check(page, expected);
        }
    }

    #[test]
    fn a_tag_that_is_too_long_is_not_held() {
        let data = "x".repeat(MAX_TAG);
        let page = |first: &str, last: &str| {
            format!("<a href='{first}' data='{data}' href='/y'><a href='{last}'>")
        };
        let expected = page(&format!("{PROXY}/x"), &format!("{PROXY}/z"));
        check(&page("/x", "/z"), &expected);
        let mut html = HtmlRewriter::new(links());
        let mut out = Vec::new();
        html.push(format!("<a data='{data}{data}").as_bytes(), &mut out);
        assert!(html.tag.is_empty() && out.len() > 2 * MAX_TAG);
    }

    fn decode(reader: impl io::Read) -> String {
        let (mut reader, mut text) = (reader, String::new());
        reader.read_to_string(&mut text).unwrap();
        text
    }

    fn filter(encoding: PageEncoding, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut filter = PageFilter::new(encoding, links());
        let mut out = Vec::new();
        for piece in bytes.chunks(7) {
            out.extend(filter.write(piece)?);
        }
        out.extend(filter.finish()?);
        Ok(out)
    }

    #[test]
    fn a_compressed_page_stays_compressed() {
        let page = format!("<a href=/x>{}", "long body ".repeat(10_000));
        let expected = page.replace("/x", &format!("{PROXY}/x"));
        let level = Compression::default();
        let compress = |mut coder: Box<dyn Coder>| {
            coder.write_all(page.as_bytes()).unwrap();
            coder.end().unwrap();
            std::mem::take(coder.output())
        };
        let gzip = compress(Box::new(GzEncoder::new(Vec::new(), level)));
        let found = filter(PageEncoding::Gzip, &gzip).unwrap();
        assert_eq!(decode(read::GzDecoder::new(&found[..])), expected);
        let zlib = compress(Box::new(ZlibEncoder::new(Vec::new(), level)));
        let found = filter(PageEncoding::Deflate, &zlib).unwrap();
        assert_eq!(decode(read::ZlibDecoder::new(&found[..])), expected);
        let raw = compress(Box::new(DeflateEncoder::new(Vec::new(), level)));
        let found = filter(PageEncoding::Deflate, &raw).unwrap();
        assert_eq!(decode(read::DeflateDecoder::new(&found[..])), expected);
        let found = filter(PageEncoding::Identity, page.as_bytes()).unwrap();
        assert_eq!(found, expected.as_bytes());
        // It ends early, or is not what it says.
        assert!(filter(PageEncoding::Gzip, &gzip[..gzip.len() - 9]).is_err());
        assert!(filter(PageEncoding::Gzip, page.as_bytes()).is_err());
        assert_eq!(filter(PageEncoding::Gzip, b"").unwrap(), b"");
    }

    #[test]
    fn only_pages_in_known_encodings_are_rewritten() {
        let of = |content_type: &'static str, encoding: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            if let Some(encoding) = encoding {
                let encoding = HeaderValue::from_static(encoding);
                headers.insert(header::CONTENT_ENCODING, encoding);
            }
            PageEncoding::of(&headers)
        };
        let identity = Some(PageEncoding::Identity);
        assert_eq!(of("text/html", None), identity);
        assert_eq!(of("text/html ; charset=utf-8", Some("")), identity);
        assert_eq!(of("text/html", Some("gzip")), Some(PageEncoding::Gzip));
        assert_eq!(
            of("text/html", Some("deflate")),
            Some(PageEncoding::Deflate)
        );
        assert_eq!(of("text/html", Some("br")), None);
        assert_eq!(of("text/plain", None), None);
        assert_eq!(PageEncoding::of(&HeaderMap::new()), None);
    }
}
