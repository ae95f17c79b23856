//! A webhook of a kubeconfig file, for authentication, authorization, audit and image policy.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use mizzen_registry::Registry;
use mizzen_value::time;
use tokio::time::Instant;

use super::hook::{self, exchange, json_post, read_response};
use super::{CallLimit, OutgoingClient, SendError, Target};
use crate::WebhookKubeconfig;

/// The largest response.
const MAX_RESPONSE: usize = 1024 * 1024;

/// Kubernetes: how many attempts a review has, and the factor of the back-off
/// (apiserver/pkg/util/webhook/webhook.go).
const ATTEMPTS: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;

/// The server and our credentials for it.
pub struct KubeconfigWebhook {
    client: OutgoingClient,
    target: Target,
    url: String,
    token: Option<String>,
    /// Whether the URL has our timeout. Kubernetes: client-go adds it if one is configured.
    sends_timeout: bool,
}

/// Why posting a review failed.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct PostError {
    /// The status code, if there was a response.
    pub code: Option<u16>,
    /// client-go's message.
    pub why: String,
}

impl KubeconfigWebhook {
    /// The server of a kubeconfig file; requests have our timeout in the URL.
    pub fn new(file: &WebhookKubeconfig, registry: &Registry) -> KubeconfigWebhook {
        // Over HTTP/1.1: the number of streams of one HTTP/2 connection is limited, and slow reviews would block the rest.

        KubeconfigWebhook {
            sends_timeout: true,
            ..KubeconfigWebhook::without_timeout(file, registry)
        }
        .over_http1()
    }

    /// The same without a timeout in the URL.
    pub fn without_timeout(file: &WebhookKubeconfig, registry: &Registry) -> KubeconfigWebhook {
        let WebhookKubeconfig {
            url,
            path,
            address,
            server_name,
            trust,
            identity,
            token,
        } = file.clone();
        // A client certificate is always presented.
        let target = Target {
            address,
            server_name,
            trust,
            as_front_proxy: true,
            http2: true,
        };
        let (client, url) = (
            OutgoingClient::plain(registry, identity),
            format!("{url}{path}"),
        );
        KubeconfigWebhook {
            client,
            target,
            url,
            token,
            sends_timeout: false,
        }
    }

    fn over_http1(mut self) -> KubeconfigWebhook {
        self.target.http2 = false;
        self
    }

    /// The URL of the webhook.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Posts a review and returns the body of a successful response.
    pub async fn post(&self, body: Bytes, timeout: Duration) -> Result<Bytes, PostError> {
        let (code, outcome) = self.exchange(body, timeout).await?;
        outcome.map_err(|error| PostError {
            code: Some(code),
            why: error.0,
        })
    }

    /// Posts a review, and retries transient failures with back-off. Each attempt has `timeout`.
    pub async fn post_with_backoff(
        &self,
        registry: &Registry,
        body: Bytes,
        mut pause: Duration,
        timeout: Duration,
    ) -> Result<Bytes, PostError> {
        for _ in 1..ATTEMPTS {
            match self.post(body.clone(), timeout).await {
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(jittered(registry, pause)).await
                }
                outcome => return outcome,
            }
            pause = pause.mul_f64(BACKOFF_FACTOR);
        }
        self.post(body, timeout).await
    }

    /// Posts without reading the body of a successful response.
    pub async fn post_and_discard(&self, body: Bytes, timeout: Duration) -> Result<(), PostError> {
        match self.exchange(body, timeout).await? {
            (200..=206, _) => Ok(()),
            (code, outcome) => Err(PostError {
                code: Some(code),
                why: outcome.err().map(|error| error.0).unwrap_or_default(),
            }),
        }
    }

    /// The server of a URL: the configured one, or one that it redirects to.
    fn target_at(&self, uri: &Uri) -> Result<Target, SendError> {
        let (address, host) = (hook::address(uri)?, uri.host().unwrap_or_default());
        let own = self.target.address.rsplit_once(':').map(|(host, _)| host);
        // The server name of the kubeconfig file also applies to redirects.
        let server_name = match own == Some(self.target.server_name.as_str()) {
            true => host.to_owned(),
            false => self.target.server_name.clone(),
        };
        Ok(Target {
            address,
            server_name,
            ..self.target.clone()
        })
    }

    async fn exchange(
        &self,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(u16, Result<Bytes, SendError>), PostError> {
        let limit = CallLimit {
            until: Instant::now() + timeout,
            bytes: MAX_RESPONSE,
        };
        let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
        let url = match self.sends_timeout {
            true => format!("{}?timeout={}", self.url, time::duration_text(nanos)),
            false => self.url.clone(),
        };
        let unanswered = |error: SendError| PostError {
            code: None,
            why: error.0,
        };
        let call =
            json_post(url, "kube-apiserver", self.token.as_deref(), body).map_err(unanswered)?;
        let target = |uri: &Uri| self.target_at(uri);
        let response = exchange(&self.client, limit, call, target)
            .await
            .map_err(unanswered)?;
        Ok(read_response(response, limit).await)
    }
}

/// A pause with up to 20 % of jitter, so that clients do not retry at the same time.
pub fn jittered(registry: &Registry, pause: Duration) -> Duration {
    let mut bytes = [0; 2];
    registry.random().fill(&mut bytes);
    pause.mul_f64(1.0 + 0.2 * f64::from(u16::from_le_bytes(bytes)) / f64::from(u16::MAX))
}

impl PostError {
    /// Whether it is transient, as upstream decides it (apiserver/pkg/util/webhook/webhook.go).
    pub fn is_transient(&self) -> bool {
        let lost = ["connection reset by peer", "http2: client connection lost"];
        matches!(self.code, Some(429 | 500 | 504)) || lost.iter().any(|end| self.why.ends_with(end))
    }

    /// Whether it is a timeout.
    pub fn is_timeout(&self) -> bool {
        self.code == Some(504) || self.why.ends_with("context deadline exceeded")
    }
}
