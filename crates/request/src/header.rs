//! The text of headers.
//!
//! Invariant: a header that is present is never read as missing. Bytes that are no UTF-8 become U+FFFD, as in Go's output.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::AsHeaderName;
use mizzen_value::Str;

/// The text of a header's first value, `""` if there is none.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Cow<'_, str> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .unwrap_or_default()
}

/// The texts of all values of a header.
pub fn texts(headers: &HeaderMap, name: impl AsHeaderName) -> Vec<Str> {
    headers
        .get_all(name)
        .iter()
        .map(|value| (&*String::from_utf8_lossy(value.as_bytes())).into())
        .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(value: &[u8], expected: &str) {
        let headers =
            HeaderMap::from_iter([(http::header::FROM, HeaderValue::from_bytes(value).unwrap())]);
        assert_eq!(text(&headers, "from"), expected);
        assert_eq!(texts(&headers, "from"), [expected]);
    }

    #[test]
    fn a_header_that_is_present_is_read() {
        check(b"jane", "jane");
        check("jürgen".as_bytes(), "jürgen");
        check(b"j\xfcrgen", "j\u{fffd}rgen");
        check(b"", "");
        assert_eq!(text(&HeaderMap::new(), "from"), "");
        assert!(texts(&HeaderMap::new(), "from").is_empty());
    }
}
