//! GET of a URL, with a limit on the response.

use bytes::Bytes;
use mizzen_transport::RedirectingCall;
use mizzen_value::json;

use super::hook::{address, read};
use super::{CallLimit, OutgoingClient, SendError, Target, Trust};

impl OutgoingClient {
    /// The body of a 200 response. Only HTTPS is supported.
    pub async fn get(
        &self,
        url: &str,
        trust: &Trust,
        limit: CallLimit,
    ) -> Result<Bytes, SendError> {
        let response = RedirectingCall::get(url)
            .send(self, limit.until, |uri| {
                address(uri)?;
                Target::at(uri, trust)
            })
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
