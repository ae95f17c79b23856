//! `/debug`: the verbosity of the log, and profiles (`pprof`).
//!
//! Kubernetes: server/routes/flags.go.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use mizzen_apiserver::{NonResourceHandler, NonResourceRequest};

use super::pprof;
use crate::log;

/// Serves profiles at `/debug/pprof`, and sets the verbosity of the log at `/debug/flags/v`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DebugHandler {
    /// False serves nothing, as upstream's `--profiling=false` does.
    pub is_enabled: bool,
}

const INDEX: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
    <table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

impl DebugHandler {
    /// Serves `/debug/flags`.
    fn serve_flags(self, request: NonResourceRequest) -> Option<Response<Bytes>> {
        if request.path == "/debug/flags/v" {
            return Some(match *request.method {
                Method::PUT => match set_verbosity(request.body) {
                    Ok(text) => plain(StatusCode::OK, &text),
                    Err(why) => plain(StatusCode::BAD_REQUEST, &why),
                },
                _ => plain(StatusCode::NOT_ACCEPTABLE, "unsupported http method"),
            });
        }
        let below = request.path.strip_prefix("/debug/flags")?;
        if !below.is_empty() && !below.starts_with('/') {
            return None;
        }
        let mut response = Response::new(Bytes::from_static(INDEX.as_bytes()));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, html);
        Some(response)
    }
}

impl NonResourceHandler for DebugHandler {
    async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
        if !self.is_enabled {
            return None;
        }
        match self.serve_flags(request) {
            None => pprof::serve(request).await,
            response => response,
        }
    }
}

/// Kubernetes: component-base/logs/logs.go, GlogSetter, with the errors of Go's strconv.
fn set_verbosity(body: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(body);
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number {
        "value out of range"
    } else {
        "invalid syntax"
    };
    let verbosity = text.parse::<u32>().ok().filter(|_| is_number);
    let verbosity =
        verbosity.ok_or_else(|| format!("strconv.ParseUint: parsing {text:?}: {why}"))?;
    // klog stores a level as a signed number.
    if i32::try_from(verbosity).is_err() {
        let why = format!("strconv.ParseInt: parsing {text:?}: value out of range");
        return Err(format!("failed set klog.logging.verbosity {text}: {why}"));
    }
    log::set_verbosity(verbosity)?;
    Ok(format!("successfully set klog.logging.verbosity to {text}"))
}

fn plain(code: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = Response::new(format!("{text}\n").into());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verbosity_is_parsed_as_in_go() {
        for (text, expected) in [
            ("", "strconv.ParseUint: parsing \"\": invalid syntax"),
            ("4\n", "strconv.ParseUint: parsing \"4\\n\": invalid syntax"),
            ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
            (
                "99999999999",
                "strconv.ParseUint: parsing \"99999999999\": value out of range",
            ),
            (
                "4294967295",
                "failed set klog.logging.verbosity 4294967295: strconv.ParseInt: parsing \"4294967295\": value out of range",
            ),
        ] {
            assert_eq!(set_verbosity(text.as_bytes()).unwrap_err(), expected);
        }
    }
}
