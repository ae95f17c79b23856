//! The server as a client of itself: what it does, it does through the API like everybody.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt as _;
use mizzen_apiserver::{Answer, Server, User};
use mizzen_value::{Value, json};

/// Under whose name the server does what is its own business.
pub(crate) const KUBE_APISERVER: &str = "kube-apiserver";

/// A client without a network. Cheap to make.
pub(crate) struct Client {
    server: Server,
    agent: HeaderValue,
}

/// What tells the cluster of `server` from every other: it stays the same for as long as its data is kept.
pub(crate) async fn cluster_uid(server: &Server) -> Result<String, String> {
    let path = "/api/v1/namespaces/kube-system";
    let (_, namespace) = Client::new(server, KUBE_APISERVER)
        .call(Method::GET, path, None)
        .await?;
    Ok(namespace["metadata"]["uid"].str().into())
}

impl Client {
    /// A client of `server`. Fields are owned under the name of `agent`, unless a request says otherwise.
    pub(crate) fn new(server: &Server, agent: &'static str) -> Client {
        Client {
            server: server.clone(),
            agent: HeaderValue::from_static(agent),
        }
    }

    /// The code of an answer, and what a GET has found.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        let answer = self.send(method.clone(), path, body).await?;
        let code = answer.status().as_u16();
        // Somebody else may have been faster, which is as well.
        if !matches!(code, 200 | 201 | 404 | 409) || code == 404 && method != Method::GET {
            return Err(format!("cannot {method} {path}: {code}"));
        }
        if (method, code) != (Method::GET, 200) {
            return Ok((code, Value::Null));
        }
        let text = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        Ok((code, json::parse(&text).unwrap_or_default()))
    }

    /// An answer whose body is still to come. A PATCH applies.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, String> {
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
