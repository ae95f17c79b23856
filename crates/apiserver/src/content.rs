//! Cacheable documents: conditional requests and ranges, as Go's http.ServeContent.
//!
//! A request for several ranges gets the whole document, as RFC 9110 permits; Go sends them as a multipart body.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use mizzen_value::time::{date_of, day_of};

use crate::request::Request;
use crate::response::{self, Response};

/// A document and its validators.
pub(crate) struct CacheableDocument<'a> {
    pub media_type: &'static str,
    pub body: Bytes,
    /// The hash that is its ETag, if it has one.
    pub hash: Option<&'a str>,
    /// When it was written, in Unix seconds.
    pub modified: i64,
}

/// A response without a body.
pub(crate) fn empty(code: StatusCode) -> Response {
    let mut answer = Response::new(Bytes::new().into());
    *answer.status_mut() = code;
    answer
}

/// Sets a header.
pub(crate) fn set(answer: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// Serves a document.
pub(crate) fn serve(request: &Request, content: &CacheableDocument) -> Response {
    let tag = content
        .hash
        .map(|hash| format!("\"{hash}\""))
        .unwrap_or_default();
    let is_read = matches!(request.method.as_str(), "GET" | "HEAD");
    let size = content.body.len();
    let mut answer = match Precondition::check(request, &tag, content.modified, is_read) {
        // Kubernetes: without an ETag there is no media type either, until Go detects it from the text.
        Precondition::Failed if content.hash.is_none() => empty(StatusCode::PRECONDITION_FAILED),
        Precondition::Failed => response::with_body(412, content.media_type, Bytes::new()),
        Precondition::NotModified => empty(StatusCode::NOT_MODIFIED),
        Precondition::Holds => match range(request, &tag, content.modified, is_read, size) {
            Err(problem) => {
                let mut answer = response::text(416, format!("{problem}\n"));
                if problem == NO_OVERLAP {
                    set(
                        &mut answer,
                        header::CONTENT_RANGE,
                        &format!("bytes */{size}"),
                    );
                }
                return answer;
            }
            Ok(Some((start, end))) => {
                let mut answer =
                    response::with_body(206, content.media_type, content.body.slice(start..end));
                set(
                    &mut answer,
                    header::CONTENT_RANGE,
                    &format!("bytes {start}-{}/{size}", end - 1),
                );
                answer
            }
            Ok(None) => response::with_body(200, content.media_type, content.body.clone()),
        },
    };
    if answer.status().is_success() {
        set(&mut answer, header::ACCEPT_RANGES, "bytes");
    }
    if !tag.is_empty() {
        set(&mut answer, header::ETAG, &tag);
    }
    if tag.is_empty() || answer.status() != StatusCode::NOT_MODIFIED {
        set(
            &mut answer,
            header::LAST_MODIFIED,
            &http_date(content.modified, "GMT"),
        );
    }
    answer
}

/// The result of a request's preconditions.
enum Precondition {
    Holds,
    NotModified,
    Failed,
}

impl Precondition {
    /// Go: checkPreconditions of net/http/fs.go.
    fn check(request: &Request, tag: &str, modified: i64, is_read: bool) -> Precondition {
        let date = |name: &str| parse_http_date(&request.header(name));
        let (matching, known) = (request.header("if-match"), request.header("if-none-match"));
        let is_wanted = match matching.is_empty() {
            true => date("if-unmodified-since").is_none_or(|date| modified <= date),
            false => tags(&matching).any(|matching| matching == "*" || matching == tag),
        };
        // Go compares seconds. A document without ETag is rendered for each request and may change within the second: clients
        // that cache it (kubectl the OpenAPI index) would miss a new CustomResourceDefinition.
        let is_older = |date: i64| {
            if tag.is_empty() {
                modified < date
            } else {
                modified <= date
            }
        };
        let is_known = match known.is_empty() {
            true => is_read && date("if-modified-since").is_some_and(is_older),
            false => {
                tags(&known).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
            }
        };
        match is_known {
            _ if !is_wanted => Precondition::Failed,
            true if is_read => Precondition::NotModified,
            true => Precondition::Failed,
            false => Precondition::Holds,
        }
    }
}

/// The ETags of a header, up to the first invalid one. Go: scanETag of net/http/fs.go.
fn tags(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        text = text.trim_start_matches([' ', '\t', ',']);
        let length = match text.strip_prefix('*') {
            Some(_) => 1,
            None => {
                let start = if text.starts_with("W/") { 2 } else { 0 };
                let inner = text[start..].strip_prefix('"')?;
                start
                    + 2
                    + inner
                        .find('"')
                        .filter(|end| !inner[..*end].contains(|c: char| c <= ' '))?
            }
        };
        let (tag, rest) = text.split_at(length);
        text = rest;
        Some(tag)
    })
}

const NO_OVERLAP: &str = "invalid range: failed to overlap";

/// The requested range; `None` for the whole document.
fn range(
    request: &Request,
    tag: &str,
    modified: i64,
    is_read: bool,
    size: usize,
) -> Result<Option<(usize, usize)>, &'static str> {
    let (requested, same) = (request.header("range"), request.header("if-range"));
    let is_same = !is_read
        || same.is_empty()
        || (!tag.is_empty() && same == tag)
        || parse_http_date(&same) == Some(modified);
    if requested.is_empty() || !is_same {
        return Ok(None);
    }
    let ranges = parse_ranges(&requested, size).ok_or("invalid range")?;
    let found: Vec<(usize, usize)> = ranges.iter().copied().flatten().collect();
    match found.as_slice() {
        [] if !ranges.is_empty() => Err(NO_OVERLAP),
        [range] => Ok(Some(*range)),
        _ => Ok(None),
    }
}

/// Ranges as start and end; a range that begins behind the end of the document is `None`. Fails if one is invalid. Go:
/// parseRange of net/http/fs.go.
fn parse_ranges(text: &str, size: usize) -> Option<Vec<Option<(usize, usize)>>> {
    let ranges = text
        .strip_prefix("bytes=")?
        .split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty());
    ranges
        .map(|range| {
            let (start, end) = range.split_once('-')?;
            let (start, end) = (start.trim(), end.trim());
            if start.is_empty() {
                let length: usize = end.parse().ok()?;
                return Some(Some((size - length.min(size), size)));
            }
            let start: usize = start.parse().ok()?;
            if start >= size {
                return Some(None);
            }
            let end = if end.is_empty() {
                size - 1
            } else {
                end.parse().ok()?
            };
            (start <= end).then(|| Some((start, end.min(size - 1) + 1)))
        })
        .collect()
}

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAY: i64 = 24 * 60 * 60;

/// A time as in HTTP headers: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn http_date(seconds: i64, zone: &str) -> String {
    let (day, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, date) = date_of(day);
    let weekday = WEEKDAYS[usize::try_from(day.rem_euclid(7)).unwrap_or_default()];
    let month = MONTHS[usize::try_from(month - 1).unwrap_or_default() % MONTHS.len()];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {date:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} {zone}")
}

/// Parses a time in HTTP's preferred form.
fn parse_http_date(text: &str) -> Option<i64> {
    let (_, text) = text.split_once(", ")?;
    let [date, month, year, time, "GMT"] = text.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else {
        return None;
    };
    let number = |text: &str| text.parse::<u16>().ok().map(i64::from);
    let day = day_of(number(year)?, i64::try_from(month).ok()?, number(date)?);
    Some(day * DAY + number(hour)? * 3600 + number(minute)? * 60 + number(second)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_dates_are_formatted_and_parsed() {
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_709_164_800, "Thu, 29 Feb 2024 00:00:00 GMT"),
        ] {
            assert_eq!(http_date(seconds, "GMT"), text);
            assert_eq!(parse_http_date(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "Sun, 06 Nov 1994",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn etags_end_at_the_first_invalid_one() {
        let read = |text| tags(text).collect::<Vec<_>>();
        assert_eq!(read(r#""a", W/"b",*"#), [r#""a""#, r#"W/"b""#, "*"]);
        assert_eq!(read(r#""a",b,"c""#), [r#""a""#]);
        assert_eq!(read(r#"a,"c""#), [""; 0]);
        assert_eq!(read(r#""a"#), [""; 0]);
    }

    #[test]
    fn ranges_are_within_the_document() {
        for (text, expected) in [
            ("bytes=0-4", Some(vec![Some((0, 5))])),
            ("bytes=2-", Some(vec![Some((2, 10))])),
            ("bytes=-3", Some(vec![Some((7, 10))])),
            ("bytes=-30", Some(vec![Some((0, 10))])),
            ("bytes=5-50", Some(vec![Some((5, 10))])),
            ("bytes=10-", Some(vec![None])),
            ("bytes=0-1, 3-4", Some(vec![Some((0, 2)), Some((3, 5))])),
            ("bytes=4-2", None),
            ("bytes=a-b", None),
            ("lines=1-2", None),
        ] {
            assert_eq!(parse_ranges(text, 10), expected, "{text}");
        }
    }
}
