//! The API server as a client of its own API, in process.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt as _;
use mizzen_apiserver::{Response, Server, User};
use mizzen_registry::Registry;
use mizzen_value::{Value, json};

/// The user agent, and so the field manager, of the server's own requests.
pub const KUBE_APISERVER: &str = "kube-apiserver";

/// A client without a network connection. Cheap to create.
pub struct LoopbackClient {
    server: Server,
    agent: HeaderValue,
}

/// The UID of the `kube-system` namespace, which identifies the cluster as long as its data is kept.
pub async fn cluster_uid(server: &Server) -> Result<String, String> {
    let path = "/api/v1/namespaces/kube-system";
    let (_, namespace) = LoopbackClient::new(server, KUBE_APISERVER)
        .call(Method::GET, path, None)
        .await?;
    Ok(namespace["metadata"]["uid"].str().into())
}

impl LoopbackClient {
    /// A client of `server`. `agent` is the default field manager.
    pub fn new(server: &Server, agent: &'static str) -> LoopbackClient {
        LoopbackClient {
            server: server.clone(),
            agent: HeaderValue::from_static(agent),
        }
    }

    /// The registry of the server.
    pub(crate) fn registry(&self) -> &Registry {
        self.server.registry()
    }

    /// The status code, and the object of a successful GET.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let response = self.send(method.clone(), path, body).await?;
        let code = response.status().as_u16();
        // A conflict means that another client has written the object already.
        if !matches!(code, 200 | 201 | 404 | 409) || code == 404 && method != Method::GET {
            return Err(format!("cannot {method} {path}: {code}"));
        }
        if (method, code) != (Method::GET, 200) {
            return Ok((code, Value::Null));
        }
        let text = response
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        Ok((code, json::parse(&text).unwrap_or_default()))
    }

    /// The response with its body as a stream. A PATCH is a server-side apply.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, String> {
        let uri = path.parse().map_err(|error| format!("{path}: {error}"))?;
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", self.agent.clone());
        if method == Method::PATCH {
            headers.insert(
                "content-type",
                HeaderValue::from_static("application/apply-patch+yaml"),
            );
        }
        let body = body
            .map(|object| Bytes::from(json::to_string(object)))
            .unwrap_or_default();
        let user = User::master("system:apiserver");
        Ok(self
            .server
            .call(Some(user), method, uri, headers, body)
            .await)
    }
}
