//! What are browsers told? Which pages may ask this server, and that they come back by TLS alone.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use mizzen_go_regexp as go_regexp;
use mizzen_go_regexp::Regexp;

use crate::answer::{self, Answer};

/// What browsers may do with our answers. The default is nothing that is not said.
#[derive(Debug, Clone, Default)]
pub struct Browsers {
    origins: Vec<Arc<Regexp>>,
    transport_security: Option<HeaderValue>,
}

/// The headers that tell a page's script that it may ask, as upstream has them.
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

impl Browsers {
    /// Lets pages ask whose origin matches one of these expressions. The error is what is wrong with them, in
    /// upstream's words.
    pub fn of_origins(origins: &[String]) -> Result<Browsers, String> {
        let origins = origins
            .iter()
            .map(|origin| pattern(origin))
            .collect::<Result<_, _>>()?;
        Ok(Browsers {
            origins,
            transport_security: None,
        })
    }

    /// The same, with these directives of HSTS. The error is what is wrong with them, in upstream's words.
    pub fn with_transport_security(self, directives: &[String]) -> Result<Browsers, String> {
        directives
            .iter()
            .try_for_each(|directive| check_directive(directive))?;
        let joined =
            HeaderValue::from_str(&directives.join("; ")).map_err(|error| error.to_string())?;
        Ok(Browsers {
            transport_security: (!directives.is_empty()).then_some(joined),
            ..self
        })
    }

    /// The answer to a browser that asks whether a page may ask. Nobody has to say who they are for that.
    pub(crate) fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Answer> {
        let asked = *method == Method::OPTIONS && self.allowed(headers).is_some();
        asked.then(|| {
            let mut answer = Answer::new(answer::Body::from(""));
            *answer.status_mut() = http::StatusCode::NO_CONTENT;
            answer
        })
    }

    /// Says it with an answer to a request with these headers.
    pub(crate) fn mark(&self, headers: &HeaderMap, answer: &mut Answer) {
        if let Some(origin) = self.allowed(headers) {
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

    /// The origin of a request, if its pages may ask.
    fn allowed<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = String::from_utf8_lossy(origin.as_bytes());
        let may = !text.is_empty()
            && self
                .origins
                .iter()
                .any(|pattern| pattern.is_match(&text).unwrap_or(false));
        may.then_some(origin)
    }
}

/// An expression that says where a host begins and ends: else a page of `example.com.evil` would match (CVE-2022-1996).
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

fn check_directive(directive: &str) -> Result<(), String> {
    if directive.trim().is_empty() {
        return Err("empty value in strict-transport-security-directives".into());
    }
    let is_age = directive
        .split_once('=')
        .is_some_and(|(name, age)| name == "max-age" && !age.contains('='));
    if is_age || ["includeSubDomains", "preload"].contains(&directive) {
        return Ok(());
    }
    Err("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
         preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn browsers(origins: &[&str], directives: &[&str]) -> Result<Browsers, String> {
        let own = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.to_string())
                .collect::<Vec<_>>()
        };
        Browsers::of_origins(&own(origins))?.with_transport_security(&own(directives))
    }

    fn asked_from(origin: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_str(origin).unwrap())])
    }

    #[test]
    fn only_pages_of_an_allowed_origin_may_ask() {
        let browsers = browsers(&["//console\\.example\\.com(:|$)"], &[]).unwrap();
        for (origin, may) in [
            ("https://console.example.com", true),
            ("https://console.example.com:8443", true),
            ("https://console.example.com.evil.org", false),
            ("https://evil.org", false),
            ("", false),
        ] {
            let headers = asked_from(origin);
            assert_eq!(
                browsers.preflight(&Method::OPTIONS, &headers).is_some(),
                may,
                "{origin}"
            );
            assert!(browsers.preflight(&Method::GET, &headers).is_none());
            let mut answer = answer::text(200, "");
            browsers.mark(&headers, &mut answer);
            let said = answer.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(said.is_some(), may, "{origin}");
        }
    }

    #[test]
    fn by_default_nothing_is_said() {
        let mut answer = answer::text(200, "");
        let before = answer.headers().clone();
        Browsers::default().mark(&asked_from("https://example.com"), &mut answer);
        assert_eq!(*answer.headers(), before);
    }

    #[test]
    fn directives_are_joined() {
        let mut answer = answer::text(200, "");
        let browsers =
            browsers(&[], &["max-age=31536000", "includeSubDomains", "preload"]).unwrap();
        browsers.mark(&HeaderMap::new(), &mut answer);
        let said = &answer.headers()[header::STRICT_TRANSPORT_SECURITY];
        assert_eq!(said, "max-age=31536000; includeSubDomains; preload");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let problem =
            |origins: &[&str], directives: &[&str]| browsers(origins, directives).unwrap_err();
        assert!(problem(&["example.com"], &[]).contains("does not pin to start/end"));
        assert!(problem(&["//example.com"], &[]).contains("does not pin to start/end"));
        assert!(problem(&["^(x$"], &[]).contains("error parsing regexp"));
        assert!(problem(&[""], &[]).contains("empty value"));
        assert!(problem(&[], &["max-age"]).contains("allowed values"));
        assert!(problem(&[], &["max-age=1=2"]).contains("allowed values"));
        assert!(problem(&[], &[" "]).contains("empty value"));
    }
}
