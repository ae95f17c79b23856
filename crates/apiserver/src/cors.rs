//! CORS (`--cors-allowed-origins`) and HSTS (`--strict-transport-security-directives`).

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use mizzen_go_regexp as go_regexp;
use mizzen_go_regexp::Regexp;

use crate::response::{self, Response};

/// The headers for browsers. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Vec<Arc<Regexp>>,
    transport_security: Option<HeaderValue>,
}

/// The headers for an allowed origin, as upstream.
const ALLOWED: [(HeaderName, &str); 4] = [
    (
        header::ACCESS_CONTROL_ALLOW_METHODS,
        "POST, GET, OPTIONS, PUT, DELETE, PATCH",
    ),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, \
         If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

const INVALID_DIRECTIVE: &str = "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, \
    includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information";

impl Cors {
    /// Allows origins that match one of these regular expressions. Errors are upstream's.
    pub fn new(origins: &[String]) -> Result<Cors, String> {
        let origins = origins
            .iter()
            .map(|origin| pattern(origin))
            .collect::<Result<_, _>>()?;
        Ok(Cors {
            origins,
            transport_security: None,
        })
    }

    /// Adds HSTS directives. Errors are upstream's.
    pub fn with_transport_security(self, directives: &[String]) -> Result<Cors, String> {
        for directive in directives {
            if directive.trim().is_empty() {
                return Err("empty value in strict-transport-security-directives".into());
            }
            let is_max_age = directive
                .split_once('=')
                .is_some_and(|(name, age)| name == "max-age" && !age.contains('='));
            if !is_max_age && !["includeSubDomains", "preload"].contains(&directive.as_str()) {
                return Err(INVALID_DIRECTIVE.into());
            }
        }
        let joined =
            HeaderValue::from_str(&directives.join("; ")).map_err(|error| error.to_string())?;
        Ok(Cors {
            transport_security: (!directives.is_empty()).then_some(joined),
            ..self
        })
    }

    /// The response to a CORS preflight request, which is not authenticated.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response> {
        let is_preflight = *method == Method::OPTIONS && self.allowed_origin(headers).is_some();
        is_preflight.then(|| {
            let mut answer = Response::new(response::Body::from(""));
            *answer.status_mut() = http::StatusCode::NO_CONTENT;
            answer
        })
    }

    /// Adds the headers to the response to a request with `headers`.
    pub(crate) fn add_headers(&self, headers: &HeaderMap, answer: &mut Response) {
        if let Some(origin) = self.allowed_origin(headers) {
            answer
                .headers_mut()
                .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            let rest = ALLOWED.map(|(name, value)| (name, HeaderValue::from_static(value)));
            answer.headers_mut().extend(rest);
        }
        if let Some(directives) = &self.transport_security {
            answer
                .headers_mut()
                .entry(header::STRICT_TRANSPORT_SECURITY)
                .or_insert(directives.clone());
        }
    }

    /// The origin of a request, if it is allowed.
    fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = String::from_utf8_lossy(origin.as_bytes());
        let is_allowed = !text.is_empty()
            && self
                .origins
                .iter()
                .any(|pattern| pattern.is_match(&text).unwrap_or(false));
        is_allowed.then_some(origin)
    }
}

/// An expression that pins the start and end of the host. Otherwise `example.com.evil` could match (CVE-2022-1996).
fn pattern(text: &str) -> Result<Arc<Regexp>, String> {
    const INVALID: &str = "--cors-allowed-origins has an invalid regular expression";
    if text.is_empty() {
        return Err("empty value in --cors-allowed-origins".into());
    }
    go_regexp::check(text).map_err(|why| format!("{INVALID}: {why}"))?;
    let is_pinned = ["^", "//"].iter().any(|start| text.contains(start))
        && ["$", ":"].iter().any(|end| text.contains(end));
    if !is_pinned {
        let why = "regular expression does not pin to start/end of host in the origin header";
        return Err(format!("{INVALID}: {why}"));
    }
    Ok(Regexp::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], directives: &[&str]) -> Result<Cors, String> {
        let own = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.to_string())
                .collect::<Vec<_>>()
        };
        Cors::new(&own(origins))?.with_transport_security(&own(directives))
    }

    fn headers_with_origin(origin: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_str(origin).unwrap())])
    }

    #[test]
    fn only_allowed_origins_get_cors_headers() {
        let cors = cors(&["//console\\.example\\.com(:|$)"], &[]).unwrap();
        for (origin, allowed) in [
            ("https://console.example.com", true),
            ("https://console.example.com:8443", true),
            ("https://console.example.com.evil.org", false),
            ("https://evil.org", false),
            ("", false),
        ] {
            let headers = headers_with_origin(origin);
            assert_eq!(
                cors.preflight(&Method::OPTIONS, &headers).is_some(),
                allowed,
                "{origin}"
            );
            assert!(cors.preflight(&Method::GET, &headers).is_none());
            let mut answer = response::text(200, "");
            cors.add_headers(&headers, &mut answer);
            let value = answer.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(value.is_some(), allowed, "{origin}");
        }
    }

    #[test]
    fn by_default_there_are_no_headers() {
        let mut answer = response::text(200, "");
        let before = answer.headers().clone();
        Cors::default().add_headers(&headers_with_origin("https://example.com"), &mut answer);
        assert_eq!(*answer.headers(), before);
    }

    #[test]
    fn directives_are_joined() {
        let mut answer = response::text(200, "");
        let cors = cors(&[], &["max-age=31536000", "includeSubDomains", "preload"]).unwrap();
        cors.add_headers(&HeaderMap::new(), &mut answer);
        let value = &answer.headers()[header::STRICT_TRANSPORT_SECURITY];
        assert_eq!(value, "max-age=31536000; includeSubDomains; preload");
    }

    #[test]
    fn invalid_origins_and_directives_are_rejected() {
        let problem =
            |origins: &[&str], directives: &[&str]| cors(origins, directives).unwrap_err();
        assert!(problem(&["example.com"], &[]).contains("does not pin to start/end"));
        assert!(problem(&["//example.com"], &[]).contains("does not pin to start/end"));
        assert!(problem(&["^(x$"], &[]).contains("error parsing regexp"));
        assert!(problem(&[""], &[]).contains("empty value"));
        assert!(problem(&[], &["max-age"]).contains("allowed values"));
        assert!(problem(&[], &["max-age=1=2"]).contains("allowed values"));
        assert!(problem(&[], &[" "]).contains("empty value"));
    }
}
