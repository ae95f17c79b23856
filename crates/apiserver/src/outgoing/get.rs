//! What is at a URL? Asked with GET, answered whole, within a limit.

use bytes::Bytes;
use http::Uri;
use mizzen_transport::Call;
use mizzen_value::json;

use super::hook::{address, read};
use super::{Client, Limit, SendError, Target, Trust};

impl Client {
    /// The body of what is there. Only HTTPS is spoken.
    pub async fn get(&self, url: &str, trust: &Trust, limit: Limit) -> Result<Bytes, SendError> {
        let response = Call::get(url)
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
    address(uri)?;
    Target::at(uri, trust)
}
