//! How is an extender reached?

use std::error::Error as _;
use std::time::Duration;

use http::{Request, StatusCode, Uri};
use kube::client::Body;
use kube::{Client, Config, Error};
use mizzen_object::{Value, json};
use tokio::time::timeout;

use super::{ExtenderOptions, trust};

/// Calls one extender.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client,
    url: String,
    /// The part of the address that comes before verbs.
    path: String,
    timeout: Duration,
}

impl Caller {
    pub(crate) fn new(options: &ExtenderOptions) -> Result<Caller, String> {
        let url = options.url.trim_end_matches('/').to_string();
        let fail = |error: &dyn std::fmt::Display| format!("extender {url}: {error}");
        let uri: Uri = url
            .parse()
            .map_err(|error: http::uri::InvalidUri| fail(&error))?;
        let authority = uri.authority().ok_or_else(|| fail(&"no host"))?;
        let root = format!("{}://{authority}/", uri.scheme_str().unwrap_or("http"));
        let mut config = Config::new(
            root.parse()
                .map_err(|error: http::uri::InvalidUri| fail(&error))?,
        );
        trust::set_up(&mut config, options).map_err(|error| fail(&error))?;
        let client = Client::try_from(config)
            .map_err(|error| fail(&format!("tlsConfig: {}", cause(&error))))?;
        let path = uri.path().trim_end_matches('/').to_string();
        Ok(Caller {
            client,
            path,
            timeout: options.timeout,
            url,
        })
    }

    /// What the extender says to something.
    pub(crate) async fn post(&self, verb: &str, arguments: &Value) -> Result<Value, String> {
        let url = format!("{}/{verb}", self.url);
        let body = Body::from(json::to_string(arguments).into_bytes());
        let request = Request::post(format!("{}/{verb}", self.path))
            .header("content-type", "application/json");
        let request = request.body(body).map_err(|error| error.to_string())?;
        let (code, text) = match timeout(self.timeout, self.exchange(request)).await {
            Err(_) => return Err(format!("Post \"{url}\": context deadline exceeded")),
            Ok(Err(error)) => return Err(format!("Post \"{url}\": {}", cause(&error))),
            Ok(Ok(answer)) => answer,
        };
        if code != StatusCode::OK {
            return Err(format!(
                "failed {verb} with extender at URL {url}, code {}",
                code.as_u16()
            ));
        }
        json::parse(&text).map_err(|error| format!("extender at URL {url}: {error}"))
    }

    async fn exchange(&self, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), Error> {
        let answer = self.client.send(request).await?;
        let code = answer.status();
        Ok((code, answer.into_body().collect_bytes().await?.to_vec()))
    }
}

/// What an error comes from: that a connection failed helps less than why.
fn cause(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}
