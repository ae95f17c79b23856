//! What is at a URL? Asked with GET, answered whole, within a limit.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use mizzen_object::json;

use super::hook::{address, read};
use super::redirect::Call;
use super::{Client, Limit, SendError, Target, Trust};

impl Client {
    /// The body of what is there. Only HTTPS is spoken.
    pub(crate) async fn get(
        &self,
        url: &str,
        trust: &Trust,
        limit: Limit,
    ) -> Result<Bytes, SendError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let call = Call {
            method: Method::GET,
            url: url.to_owned(),
            headers,
            body: Bytes::new(),
        };
        let response = call
            .send(self, limit.until, |uri| target(uri, trust))
            .await?;
        match response.status().as_u16() {
            200 => read(response.into_body(), limit).await,
            code => {
                let url = json::quote(url);
                Err(SendError(format!(
                    "Get {url}: the server answered with the status code {code}"
                )))
            }
        }
    }
}

fn target(uri: &Uri, trust: &Trust) -> Result<Target, SendError> {
    let (address, server_name) = (address(uri)?, uri.host().unwrap_or_default().to_owned());
    Ok(Target {
        address,
        server_name,
        trust: trust.clone(),
        as_front_proxy: false,
        http2: true,
    })
}
