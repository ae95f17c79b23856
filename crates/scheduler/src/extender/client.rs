//! The HTTP client of one extender.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use mizzen_sdk::clock::Clock;
use mizzen_transport::{CallLimit, Client, RedirectingCall, SendError, read_body};
use mizzen_value::{Value, json};
use tokio::time::Instant;

use super::{ExtenderOptions, tls};

/// The most bytes of a response: more than 5,000 whole nodes take.
const MAX_RESPONSE: usize = 256 << 20;

/// Sends requests to one extender.
#[derive(Clone)]
pub(crate) struct ExtenderClient {
    client: Client,
    tls: tls::ExtenderTls,
    url: String,
    timeout: Duration,
}

impl ExtenderClient {
    pub(crate) fn new(options: &ExtenderOptions, clock: &Clock) -> Result<ExtenderClient, String> {
        let url = options.url.trim_end_matches('/');
        let fail = |error: &dyn std::fmt::Display| format!("extender {url}: {error}");
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| fail(&error))?;
        uri.authority().ok_or_else(|| fail(&"no host"))?;
        let tls = tls::read_tls_config(options).map_err(|error| fail(&error))?;
        let clock = Arc::new(CertificateClock(clock.clone()));
        let client = Client::new(clock, tls.identity.clone());
        let target = tls.target(&uri).map_err(|error| fail(&error))?;
        client
            .check(&target)
            .map_err(|error| fail(&format!("tlsConfig: {error}")))?;
        Ok(ExtenderClient {
            client,
            tls,
            url: url.to_owned(),
            timeout: options.timeout,
        })
    }

    /// Posts the arguments of a verb and returns the decoded response.
    pub(crate) async fn post(&self, verb: &str, arguments: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.url);
        let limit = CallLimit {
            until: Instant::now() + self.timeout,
            bytes: MAX_RESPONSE,
        };
        let call = RedirectingCall::post_json(url.as_str(), json::to_string(arguments));
        let response = call
            .send(&self.client, limit.until, |uri| self.tls.target(uri))
            .await
            .map_err(|error| error.0)?;
        if response.status() != 200 {
            return Err(format!(
                "failed {verb} with extender at URL {url}, code {}",
                response.status().as_u16()
            ));
        }
        let body = read_body(response.into_body(), limit)
            .await
            .map_err(|error: SendError| error.0)?;
        json::parse(&body).map_err(|error| format!("extender at URL {url}: {error}"))
    }
}

/// The clock that certificates are verified against.
struct CertificateClock(Clock);

impl mizzen_value::clock::Clock for CertificateClock {
    fn now(&self) -> (i64, u32) {
        ((self.0)().as_second(), 0)
    }
}
