//! What is at a URL? Asked with GET, answered whole, within a limit.

use bytes::Bytes;
use http::{Request, Uri, header};
use mizzen_object::json;
use tokio::time::timeout_at;

use super::hook::read;
use super::{Client, Limit, SendError, Target, Trust, whole};

impl Client {
    /// The body of what is there. Only HTTPS is spoken.
    pub async fn get(&self, url: &str, trust: &Trust, limit: Limit) -> Result<Bytes, SendError> {
        let failed = |why: &dyn std::fmt::Display| SendError(format!("Get {}: {why}", json::quote(url)));
        let target = target(url, trust).ok_or_else(|| failed(&"not the address of an HTTPS server"))?;
        let request = Request::get(url).header(header::ACCEPT, "application/json");
        let request = request.body(whole(Bytes::new())).map_err(|error| failed(&error))?;
        let response = match timeout_at(limit.until, self.send(&target, request)).await {
            Ok(response) => response.map_err(|error| failed(&error))?,
            Err(_) => return Err(failed(&"context deadline exceeded")),
        };
        match response.status().as_u16() {
            200 => read(response.into_body(), limit).await,
            code => Err(failed(&format!("the server answered with the status code {code}"))),
        }
    }
}

fn target(url: &str, trust: &Trust) -> Option<Target> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"))?.to_owned();
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(443));
    Some(Target { address, server_name: host, trust: trust.clone(), as_front_proxy: false, http2: true })
}
