//! `/debug/pprof`: profiles of the running process, for `go tool pprof`.
//!
//! Kubernetes: server/routes/profiling.go, which serves Go's `net/http/pprof`. CPU profiles and symbol
//! lookup are served. The other profiles (heap, goroutine, block, mutex, threadcreate, execution traces) are of Go's runtime
//! and unknown here.

mod cpu;
mod encode;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use mizzen_apiserver::NonResourceRequest;
use tokio::task::spawn_blocking;

use cpu::CpuProfiler;

/// Go: the default duration of a CPU profile.
const DEFAULT_DURATION: Duration = Duration::from_secs(30);

const INDEX: &str = "<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<br>\nTypes of profiles available:\n\
    <table>\n<thead><td>Count</td><td>Profile</td></thead>\n\
    <tr><td>0</td><td><a href='profile?debug=1'>profile</a></td></tr>\n\
    <tr><td>0</td><td><a href='symbol?debug=1'>symbol</a></td></tr>\n</table>\n<p>\nProfile Descriptions:\n<ul>\n\
    <li>profile: the functions that used the CPU, in pprof's format; the parameter seconds says for how long [default: 30]</li>\n\
    <li>symbol: names of functions, by their addresses in the query or the body, separated by '+'</li>\n\
    </ul>\n</p>\n</body>\n</html>";

/// Serves `/debug/pprof`; none for other paths.
pub(super) async fn serve(request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
    Some(match request.path.strip_prefix("/debug/pprof")? {
        "" => {
            // Go: `http.Redirect` writes a body only for GET.
            let (body, is_html) = match *request.method {
                Method::GET => ("<a href=\"/debug/pprof/\">Found</a>.\n\n", true),
                Method::HEAD => ("", true),
                _ => ("", false),
            };
            let mut response = Response::new(body.into());
            *response.status_mut() = StatusCode::FOUND;
            let headers = response.headers_mut();
            headers.insert(header::LOCATION, HeaderValue::from_static("/debug/pprof/"));
            if is_html {
                let html = HeaderValue::from_static("text/html; charset=utf-8");
                headers.insert(header::CONTENT_TYPE, html);
            }
            response
        }
        "/" => ok("text/html; charset=utf-8", INDEX.into()),
        "/profile" => serve_profile(request.query).await,
        "/symbol" => serve_symbols(request).await,
        name if name.starts_with('/') => error(StatusCode::NOT_FOUND, "Unknown profile"),
        _ => return None,
    })
}

/// Profiles the process for a time. It ends when the client disconnects.
async fn serve_profile(query: &str) -> Response<Bytes> {
    let seconds = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("seconds="));
    // Go: an invalid or non-positive number is ignored.
    let duration = seconds
        .and_then(|text| text.parse::<i64>().ok())
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map_or(DEFAULT_DURATION, Duration::from_secs);
    let profiler = match spawn_blocking(CpuProfiler::start).await {
        Ok(Ok(profiler)) => profiler,
        Ok(Err(why)) => return not_enabled(&why),
        Err(panicked) => return not_enabled(&panicked.to_string()),
    };
    tokio::time::sleep(duration).await;
    let encoded = match spawn_blocking(|| profiler.stop()).await {
        Ok(Ok(encoded)) => encoded,
        Ok(Err(why)) => return not_enabled(&why),
        Err(panicked) => return not_enabled(&panicked.to_string()),
    };
    let mut response = ok("application/octet-stream", encoded.into());
    response.headers_mut().insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"profile\""),
    );
    response
}

fn not_enabled(why: &str) -> Response<Bytes> {
    error(
        StatusCode::INTERNAL_SERVER_ERROR,
        &format!("Could not enable CPU profiling: {why}"),
    )
}

/// The names of functions by the addresses in the query, or in the body of a POST.
async fn serve_symbols(request: NonResourceRequest<'_>) -> Response<Bytes> {
    let addresses = match *request.method {
        Method::POST => String::from_utf8_lossy(request.body).into_owned(),
        _ => request.query.to_owned(),
    };
    // The first lookup reads the symbols of the whole program.
    let table = spawn_blocking(move || {
        // Go: a number that is not zero means that symbols are available.
        let mut table = "num_symbols: 1\n".to_owned();
        for address in addresses.split('+').filter_map(parse_address) {
            if let Some(name) = cpu::function_name(address) {
                table += &format!("{address:#x} {name}\n");
            }
        }
        table
    });
    ok(
        "text/plain; charset=utf-8",
        table.await.unwrap_or_default().into(),
    )
}

/// Go: `strconv.ParseUint` with base 0; zero is no address.
fn parse_address(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'x', ..] => (&lower[2..], 16),
        [b'0', b'o', ..] => (&lower[2..], 8),
        [b'0', b'b', ..] => (&lower[2..], 2),
        [b'0', ..] => (&lower[1..], 8),
        _ => (&lower[..], 10),
    };
    let address = match digits.starts_with('+') {
        true => None,
        false => usize::from_str_radix(digits, radix).ok(),
    };
    address.filter(|address| *address != 0)
}

fn ok(media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Go: errors of pprof have a header of their own.
fn error(code: StatusCode, text: &str) -> Response<Bytes> {
    let mut response = ok("text/plain; charset=utf-8", format!("{text}\n").into());
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert("x-go-pprof", HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_go() {
        for (text, expected) in [
            ("0x1F", Some(31)),
            ("31", Some(31)),
            ("037", Some(31)),
            ("0o37", Some(31)),
            ("0b11111", Some(31)),
            ("0", None),
            ("", None),
            ("0x", None),
            ("+1", None),
            ("seconds=1", None),
            ("0x10000000000000000", None),
        ] {
            assert_eq!(parse_address(text), expected, "{text}");
        }
    }
}
