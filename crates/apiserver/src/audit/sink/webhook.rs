//! Events that another server is sent.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use mizzen_registry::Registry;
use tokio::time::{sleep, timeout};

use super::Delivery;
use crate::audit::counters::{Counters, Place};
use crate::delegate::{Kubeconfig, KubeconfigError};
use crate::outgoing::{Client, Target, jittered, json_post};
use crate::receive::MAX_BODY;

/// Kubernetes: how long the server may take (apiserver/pkg/util/webhook/webhook.go).
const PATIENCE: Duration = Duration::from_secs(30);
/// Kubernetes: how often it is tried (apiserver/pkg/util/webhook/webhook.go).
const ATTEMPTS: i32 = 5;
/// By how much the pause between two attempts grows.
const GROWTH: f64 = 1.5;

/// The server that events are sent to.
#[derive(Clone)]
pub struct WebhookSetup {
    kubeconfig: Arc<Kubeconfig>,
    /// The pause before the second attempt.
    pub initial_backoff: Duration,
    /// How events get there.
    pub delivery: Delivery,
}

impl WebhookSetup {
    /// The server that the current context of a kubeconfig file names.
    pub fn load(
        file: &Path,
        initial_backoff: Duration,
        delivery: Delivery,
    ) -> Result<WebhookSetup, KubeconfigError> {
        Ok(WebhookSetup { kubeconfig: Arc::new(Kubeconfig::load(file)?), initial_backoff, delivery })
    }
}

/// Keys are not for logs.
impl fmt::Debug for WebhookSetup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WebhookSetup").field("url", &self.kubeconfig.url).finish_non_exhaustive()
    }
}

/// The way to that server.
pub(super) struct Webhook {
    registry: Registry,
    client: Client,
    target: Target,
    url: String,
    token: Option<String>,
    initial_backoff: Duration,
}

impl Webhook {
    pub fn new(setup: WebhookSetup, registry: &Registry) -> Webhook {
        let Kubeconfig { url, path, address, server_name, trust, identity, token } = &*setup.kubeconfig;
        let (address, server_name, trust) = (address.clone(), server_name.clone(), trust.clone());
        // Whatever identity there is, it is shown.
        let target = Target { address, server_name, trust, as_front_proxy: true, http2: true };
        Webhook {
            registry: registry.clone(),
            client: Client::plain(registry, identity.clone()),
            target,
            url: format!("{url}{path}"),
            token: token.clone(),
            initial_backoff: setup.initial_backoff,
        }
    }

    /// Sends events, some times if need be; whether that worked.
    pub async fn tell(&self, events: &[Bytes], counters: &Counters) -> bool {
        let body = list(events);
        let mut pause = self.initial_backoff;
        for attempt in 1.. {
            match timeout(PATIENCE, self.post(body.clone())).await {
                Ok(Ok(())) => return true,
                Ok(Err(why)) if attempt == ATTEMPTS => counters.lost(Place::Webhook, events.len(), &why),
                Err(_) if attempt == ATTEMPTS => {
                    counters.lost(Place::Webhook, events.len(), "the audit webhook takes too long");
                }
                _ => {
                    sleep(jittered(&self.registry, pause)).await;
                    pause = pause.mul_f64(GROWTH);
                    continue;
                }
            }
            break;
        }
        false
    }

    async fn post(&self, body: Bytes) -> Result<(), String> {
        let request = json_post(&self.url, self.token.as_deref(), body).map_err(|error| error.to_string())?;
        let response = self.client.send(&self.target, request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        // Read, so that the connection can be used again.
        let _ = Limited::new(response.into_body(), MAX_BODY).collect().await;
        if code.is_success() { Ok(()) } else { Err(format!("the audit webhook answered {code}")) }
    }
}

/// The text of a list of events.
fn list(events: &[Bytes]) -> Bytes {
    const HEAD: &[u8] =
        b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[";
    let size = events.iter().map(|event| event.len() + 1).sum::<usize>();
    let mut text = Vec::with_capacity(HEAD.len() + size + 2);
    text.extend_from_slice(HEAD);
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(event);
    }
    text.extend_from_slice(b"]}");
    text.into()
}
