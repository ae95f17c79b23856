//! A server that a kubeconfig file names, to whose one address reviews are posted: who decides or knows in our stead.

use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use mizzen_registry::Registry;
use mizzen_value::time;
use tokio::time::Instant;

use super::hook::{self, exchange, json_post, judge};
use super::{Client, Limit, SendError, Target};
use crate::delegate::kubeconfig::Kubeconfig;

/// The most bytes of an answer.
const MAX_ANSWER: usize = 1024 * 1024;

/// Kubernetes: how often a review is posted, and how much longer the pause is each time
/// (apiserver/pkg/util/webhook/webhook.go).
const ATTEMPTS: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;

/// The server, with what we show to it.
pub struct Remote {
    client: Client,
    target: Target,
    url: String,
    token: Option<String>,
    /// Whether the address says how long we wait. Kubernetes: client-go does so where that is configured.
    says_patience: bool,
}

/// Why a review got no answer that could be read.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct PostError {
    /// The code of the answer, if there was one.
    pub code: Option<u16>,
    /// What is wrong, in the words of client-go.
    pub why: String,
}

impl Remote {
    /// The server of a kubeconfig file, which is told how long we wait.
    pub fn new(file: &Kubeconfig, registry: &Registry) -> Remote {
        // One connection of HTTP/2 has so many streams and no more: questions that are answered slowly would hold up
        // others.
        Remote {
            says_patience: true,
            ..Remote::silent(file, registry)
        }
        .over_http1()
    }

    /// The same, asked without further words.
    pub(crate) fn silent(file: &Kubeconfig, registry: &Registry) -> Remote {
        let Kubeconfig {
            url,
            path,
            address,
            server_name,
            trust,
            identity,
            token,
        } = file.clone();
        // Whatever identity there is, it is shown.
        let target = Target {
            address,
            server_name,
            trust,
            as_front_proxy: true,
            http2: true,
        };
        let (client, url) = (Client::plain(registry, identity), format!("{url}{path}"));
        Remote {
            client,
            target,
            url,
            token,
            says_patience: false,
        }
    }

    fn over_http1(mut self) -> Remote {
        self.target.http2 = false;
        self
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Posts a review and gives back the body of a good answer.
    pub async fn post(&self, body: Bytes, patience: Duration) -> Result<Bytes, PostError> {
        let (code, outcome) = self.exchange(body, patience).await?;
        outcome.map_err(|error| PostError {
            code: Some(code),
            why: error.0,
        })
    }

    /// Posts a review again, later and later, while it fails for a reason that may pass. Each attempt has `patience`.
    pub async fn post_with_backoff(
        &self,
        registry: &Registry,
        body: Bytes,
        mut pause: Duration,
        patience: Duration,
    ) -> Result<Bytes, PostError> {
        for _ in 1..ATTEMPTS {
            match self.post(body.clone(), patience).await {
                Err(error) if error.is_passing() => {
                    tokio::time::sleep(jittered(registry, pause)).await
                }
                outcome => return outcome,
            }
            pause = pause.mul_f64(BACKOFF_FACTOR);
        }
        self.post(body, patience).await
    }

    /// Posts something whose answer does not matter, as long as it is a good one.
    pub(crate) async fn tell(&self, body: Bytes, patience: Duration) -> Result<(), PostError> {
        match self.exchange(body, patience).await? {
            (200..=206, _) => Ok(()),
            (code, outcome) => Err(PostError {
                code: Some(code),
                why: outcome.err().map(|error| error.0).unwrap_or_default(),
            }),
        }
    }

    /// Who must answer at a URL: the server itself, or one that it leads to.
    fn target_at(&self, uri: &Uri) -> Result<Target, SendError> {
        let (address, host) = (hook::address(uri)?, uri.host().unwrap_or_default());
        let own = self.target.address.rsplit_once(':').map(|(host, _)| host);
        // A name that the kubeconfig file gives counts wherever the server leads to.
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
        patience: Duration,
    ) -> Result<(u16, Result<Bytes, SendError>), PostError> {
        let limit = Limit {
            until: Instant::now() + patience,
            bytes: MAX_ANSWER,
        };
        let nanos = i64::try_from(patience.as_nanos()).unwrap_or(i64::MAX);
        let url = match self.says_patience {
            true => format!("{}?timeout={}", self.url, time::duration_text(nanos)),
            false => self.url.clone(),
        };
        let call =
            json_post(url, "kube-apiserver", self.token.as_deref(), body).map_err(|error| {
                PostError {
                    code: None,
                    why: error.0,
                }
            })?;
        let unanswered = |error: SendError| PostError {
            code: None,
            why: error.0,
        };
        let target = |uri: &Uri| self.target_at(uri);
        let response = exchange(&self.client, limit, call, target)
            .await
            .map_err(unanswered)?;
        Ok(judge(response, limit).await)
    }
}

/// A pause that is up to a fifth longer by chance, so that not all come back at once.
pub(crate) fn jittered(registry: &Registry, pause: Duration) -> Duration {
    let mut chance = [0; 2];
    registry.random().fill(&mut chance);
    pause.mul_f64(1.0 + 0.2 * f64::from(u16::from_le_bytes(chance)) / f64::from(u16::MAX))
}

impl PostError {
    /// Whether it may be otherwise the next time, as upstream sees it (apiserver/pkg/util/webhook/webhook.go).
    pub fn is_passing(&self) -> bool {
        let lost = ["connection reset by peer", "http2: client connection lost"];
        matches!(self.code, Some(429 | 500 | 504)) || lost.iter().any(|end| self.why.ends_with(end))
    }

    /// Whether the answer took too long.
    pub fn is_late(&self) -> bool {
        self.code == Some(504) || self.why.ends_with("context deadline exceeded")
    }
}
