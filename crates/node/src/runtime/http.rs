//! HTTP responses of a simulated pod, from an annotation for all ports of the pod or for one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mizzen_value::{Value, json, yaml};

use super::PodConnection;
use crate::pod::spec;

/// The annotation with the responses of a pod on its ports; with a dot and a number, on that port.
pub(super) const HTTP: &str = "mizzen.dev/http";

/// Kubernetes: the most redirects of a probe (pkg/probe/http, `RedirectChecker`).
const MAX_REDIRECTS: usize = 10;
/// The buffer size of a connection in each direction.
const BUFFER: usize = 64 * 1024;
/// The time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(60);

/// The responses of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HttpSite {
    common: Option<HttpPages>,
    ports: BTreeMap<u16, HttpPages>,
}

/// Pages by path; a path that ends with `*` matches as a prefix.
#[derive(Debug, Clone, Default, PartialEq)]
struct HttpPages(Vec<(String, HttpPage)>);

#[derive(Debug, Clone, PartialEq)]
struct HttpPage {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl HttpSite {
    /// Parses a pod's annotations.
    pub(super) fn from_pod(pod: &Value) -> Result<HttpSite, String> {
        let mut site = HttpSite::default();
        for (name, text) in pod["metadata"]["annotations"].entries() {
            let Some(port) = name.strip_prefix(HTTP) else {
                continue;
            };
            let pages =
                || HttpPages::parse(text.str()).map_err(|problem| format!("{name}: {problem}"));
            match port.strip_prefix('.') {
                None if port.is_empty() => site.common = Some(pages()?),
                None => {}
                Some(port) => match port.parse() {
                    Ok(port @ 1..) => drop(site.ports.insert(port, pages()?)),
                    _ => return Err(format!("{name}: {port:?} is not a port number")),
                },
            }
        }
        Ok(site)
    }

    /// Connects to a port. The connection is refused if no annotation covers the port, or if the
    /// pod does not run.
    pub(super) fn connect(&self, pod: &Value, port: u16) -> io::Result<Box<dyn PodConnection>> {
        let lists = ["containerStatuses", "initContainerStatuses"];
        let mut statuses = lists.iter().flat_map(|list| pod["status"][*list].list());
        let is_running = statuses.any(|status| !status["state"]["running"].is_null());
        let pages = self.pages(pod, port).filter(|_| is_running).cloned();
        let pages = pages.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "connect: connection refused",
            )
        })?;
        let (near, far) = tokio::io::duplex(BUFFER);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = pages.response(request.uri().path());
                async move {
                    // The body is read so that the next request of the connection can be.
                    let mut body = request.into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                    Ok::<_, Infallible>(response)
                }
            });
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .half_close(true);
            let _ = builder.serve_connection(TokioIo::new(far), service).await;
        });
        Ok(Box::new(near))
    }

    /// The result of an HTTP probe, if the annotations cover its port. Kubernetes: a redirect to
    /// the same host is followed, any other one is a success (pkg/probe/http).
    pub(super) fn probe(
        &self,
        pod: &Value,
        container: &Value,
        action: &Value,
    ) -> Option<Result<(), String>> {
        // The annotations do not cover other hosts.
        if !action["host"].is_empty() {
            return None;
        }
        let named = |name: &str| {
            let mut ports = container["ports"].list().iter();
            ports
                .find(|port| port["name"].str() == name)
                .map(|port| port["containerPort"].int())
        };
        let port = match &action["port"] {
            Value::Int(port) => *port,
            port => named(port.str()).or_else(|| port.str().parse().ok())?,
        };
        let pages = self.pages(pod, u16::try_from(port).ok()?)?;
        let mut target = action["path"].str().to_owned();
        for _ in 0..MAX_REDIRECTS {
            let path = target.split(['?', '#']).next().unwrap_or_default();
            let response = pages.response(if path.is_empty() { "/" } else { path });
            let status = response.status();
            let location = response
                .headers()
                .get(LOCATION)
                .and_then(|to| to.to_str().ok());
            match location.filter(|to| to.starts_with('/') && !to.starts_with("//")) {
                Some(to) if status.is_redirection() => target = to.to_owned(),
                _ if (200..400).contains(&status.as_u16()) => return Some(Ok(())),
                _ => {
                    let code = status.as_u16();
                    return Some(Err(format!("HTTP probe failed with statuscode: {code}")));
                }
            }
        }
        let host = pod["status"]["podIP"].str();
        Some(Err(format!(
            "Get \"http://{host}:{port}{target}\": stopped after {MAX_REDIRECTS} redirects"
        )))
    }

    /// The pages of a port. Pages for all ports need a container port, if the pod declares any.
    fn pages(&self, pod: &Value, port: u16) -> Option<&HttpPages> {
        let mut declared = spec::containers(pod)
            .flat_map(|(_, container)| container["ports"].list())
            .peekable();
        let has_port = declared.peek().is_none()
            || declared.any(|known| known["containerPort"].int() == i64::from(port));
        let own = self.ports.get(&port);
        own.or_else(|| self.common.as_ref().filter(|_| has_port))
    }
}

impl HttpPages {
    /// Plain text is the body of every page. Text that starts with a slash or a brace is YAML or
    /// JSON with pages by path.
    fn parse(text: &str) -> Result<HttpPages, String> {
        if !text.trim_start().starts_with(['/', '{']) {
            return Ok(HttpPages(vec![("*".into(), HttpPage::of_text(text))]));
        }
        let read = yaml::to_json(text.as_bytes()).map_err(|error| error.to_string())?;
        let pages = json::parse(&read).map_err(|error| error.to_string())?;
        let mut parsed = Vec::new();
        for (path, page) in pages.entries() {
            if !path.starts_with('/') {
                return Err(format!("the path {path:?} does not begin with a slash"));
            }
            parsed.push((
                path.to_owned(),
                HttpPage::parse(page).map_err(|problem| format!("{path}: {problem}"))?,
            ));
        }
        Ok(HttpPages(parsed))
    }

    fn response(&self, path: &str) -> Response<Full<Bytes>> {
        let exact = self.0.iter().find(|(known, _)| known == path);
        // The longest prefix wins.
        let begins = |known: &str| {
            known
                .strip_suffix('*')
                .is_some_and(|begin| path.starts_with(begin))
        };
        let wide = || {
            self.0
                .iter()
                .filter(|(known, _)| begins(known))
                .max_by_key(|(known, _)| known.len())
        };
        let page = exact.or_else(wide).map(|(_, page)| page.clone());
        let page = page.unwrap_or_else(|| HttpPage {
            status: StatusCode::NOT_FOUND,
            ..HttpPage::of_text("404 page not found\n")
        });
        let mut response = Response::new(Full::new(page.body));
        *response.status_mut() = page.status;
        *response.headers_mut() = page.headers;
        response
    }
}

impl HttpPage {
    fn of_text(text: &str) -> HttpPage {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        let headers = [(CONTENT_TYPE, plain)].into_iter().collect();
        HttpPage {
            status: StatusCode::OK,
            headers,
            body: Bytes::from(text.to_owned()),
        }
    }

    /// A string is the body; an object has `status`, `headers` and `body`.
    fn parse(value: &Value) -> Result<HttpPage, String> {
        if let Some(text) = value.as_str() {
            return Ok(HttpPage::of_text(text));
        }
        if !matches!(value, Value::Map(_)) {
            return Err("a page is a text, or has a status, headers and a body".into());
        }
        let mut page = HttpPage::of_text(value["body"].str());
        for (field, part) in value.entries() {
            match (field, part) {
                ("body", Value::String(_)) => {}
                ("status", Value::Int(code)) => {
                    let status = u16::try_from(*code)
                        .ok()
                        .filter(|code| (200..600).contains(code));
                    let status = status.and_then(|code| StatusCode::from_u16(code).ok());
                    page.status = status.ok_or_else(|| format!("{code} is not a status"))?;
                }
                ("headers", Value::Map(_)) => {
                    for (name, text) in part.entries() {
                        let invalid = || format!("{name:?} is not a header with a text");
                        let name: HeaderName = name.parse().map_err(|_| invalid())?;
                        let text = HeaderValue::from_str(text.as_str().ok_or_else(invalid)?);
                        page.headers.insert(name, text.map_err(|_| invalid())?);
                    }
                }
                _ => {
                    return Err(format!(
                        "the field {field:?} is unknown or of the wrong type"
                    ));
                }
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pod(annotations: Value) -> Value {
        value!({
            "metadata": { "name": "web", "annotations": (annotations) },
            "spec": { "containers": [{ "name": "web", "ports": [{ "containerPort": 80 }] }] },
            "status": { "containerStatuses": [{ "name": "web", "state": { "running": {} } }] }
        })
    }

    fn found(pages: &str, path: &str) -> (u16, String) {
        let page = HttpPages::parse(pages).unwrap().response(path);
        (
            page.status().as_u16(),
            format!("{:?}", page.headers().get(CONTENT_TYPE).unwrap()),
        )
    }

    #[test]
    fn plain_text_is_every_page_and_an_object_has_pages_by_path() {
        assert_eq!(found("hello", "/any").0, 200);
        let pages = "/: hello\n/a/*: {status: 503}\n/a/b: {headers: {Content-Type: x/y}, body: '{}'}\n/a/c/*: more";
        for (path, status) in [
            ("/", 200),
            ("/x", 404),
            ("/a/", 503),
            ("/a/b", 200),
            ("/a/c/d", 200),
            ("/a", 404),
        ] {
            assert_eq!(found(pages, path).0, status, "{path}");
        }
        assert_eq!(found(pages, "/a/b").1, "\"x/y\"");
        assert_eq!(found("{\"/\": {\"status\": 404}}", "/").0, 404);
    }

    #[test]
    fn an_invalid_annotation_names_the_problem() {
        let problem = |name: &str, text: &str| {
            let mut annotations = Value::object();
            annotations.set(name, text);
            HttpSite::from_pod(&pod(annotations)).unwrap_err()
        };
        assert_eq!(
            problem("mizzen.dev/http.web", "x"),
            "mizzen.dev/http.web: \"web\" is not a port number"
        );
        assert_eq!(
            problem("mizzen.dev/http.0", "x"),
            "mizzen.dev/http.0: \"0\" is not a port number"
        );
        assert_eq!(
            problem(HTTP, "/: {status: 99}"),
            "mizzen.dev/http: /: 99 is not a status"
        );
        assert_eq!(
            problem(HTTP, "/: 5"),
            "mizzen.dev/http: /: a page is a text, or has a status, headers and a body"
        );
        assert_eq!(
            problem(HTTP, "{a: b}"),
            "mizzen.dev/http: the path \"a\" does not begin with a slash"
        );
        assert_eq!(
            problem(HTTP, "/: {code: 200}"),
            "mizzen.dev/http: /: the field \"code\" is unknown or of the wrong type"
        );
        assert!(problem(HTTP, "/: {").starts_with("mizzen.dev/http: "));
    }

    #[tokio::test]
    async fn a_port_serves_requests_one_after_the_other() {
        let pod = pod(value!({ "mizzen.dev/http": "hello", "mizzen.dev/http.9090": "metrics" }));
        let site = HttpSite::from_pod(&pod).unwrap();
        let mut connection = site.connect(&pod, 80).unwrap();
        let requests = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyHEAD / HTTP/1.1\r\nHost: x\r\n\r\n\
                        GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        connection.write_all(requests.as_bytes()).await.unwrap();
        let mut answers = String::new();
        connection.read_to_string(&mut answers).await.unwrap();
        assert_eq!(
            answers.matches("HTTP/1.1 200 OK\r\n").count(),
            3,
            "{answers}"
        );
        assert_eq!(
            answers.matches("hello").count(),
            2,
            "HEAD has no body: {answers}"
        );
        assert!(
            site.connect(&pod, 9090).is_ok(),
            "a port of its own need not be declared"
        );
        let refused = site.connect(&pod, 81).err().unwrap();
        assert_eq!(refused.to_string(), "connect: connection refused");
        assert!(HttpSite::default().connect(&pod, 80).is_err());
        let mut waiting = pod.clone();
        waiting.set("status", Value::object());
        assert!(
            site.connect(&waiting, 80).is_err(),
            "a pod that does not run"
        );
    }
}
