//! The webhook backend.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_outgoing::{KubeconfigWebhook, WebhookKubeconfig, WebhookKubeconfigError, jittered};
use mizzen_registry::Registry;
use tokio::time::sleep;

use super::Delivery;
use crate::counters::{AuditMetrics, AuditPlugin};

/// Kubernetes: the time-out of one attempt (apiserver/pkg/util/webhook/webhook.go).
const PATIENCE: Duration = Duration::from_secs(30);
/// Kubernetes: the number of attempts (apiserver/pkg/util/webhook/webhook.go).
const ATTEMPTS: i32 = 5;
/// The factor of the back-off.
const GROWTH: f64 = 1.5;

/// Options of the webhook backend.
#[derive(Clone)]
pub struct AuditWebhookOptions {
    kubeconfig: Arc<WebhookKubeconfig>,
    /// The initial back-off.
    pub initial_backoff: Duration,
    /// How events are delivered.
    pub delivery: Delivery,
}

impl AuditWebhookOptions {
    /// Loads the server of the current context of a kubeconfig file.
    pub fn load(
        file: &Path,
        initial_backoff: Duration,
        delivery: Delivery,
    ) -> Result<AuditWebhookOptions, WebhookKubeconfigError> {
        Ok(AuditWebhookOptions {
            kubeconfig: Arc::new(WebhookKubeconfig::load(file)?),
            initial_backoff,
            delivery,
        })
    }
}

/// Does not show keys.
impl fmt::Debug for AuditWebhookOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WebhookSetup")
            .field("url", &self.kubeconfig.url)
            .finish_non_exhaustive()
    }
}

/// The webhook backend.
pub(super) struct AuditWebhook {
    registry: Registry,
    remote: KubeconfigWebhook,
    initial_backoff: Duration,
}

impl AuditWebhook {
    pub(super) fn new(setup: AuditWebhookOptions, registry: &Registry) -> AuditWebhook {
        let remote = KubeconfigWebhook::without_timeout(&setup.kubeconfig, registry);
        AuditWebhook {
            registry: registry.clone(),
            remote,
            initial_backoff: setup.initial_backoff,
        }
    }

    /// Sends an EventList, with retries. Returns whether that succeeded.
    pub(super) async fn send(&self, events: &[Bytes], counters: &AuditMetrics) -> bool {
        let body = event_list(events);
        let mut pause = self.initial_backoff;
        for attempt in 1.. {
            let Err(error) = self.remote.post_and_discard(body.clone(), PATIENCE).await else {
                return true;
            };
            if attempt == ATTEMPTS {
                counters.record_errors(AuditPlugin::Webhook, events.len(), &error.why);
                break;
            }
            sleep(jittered(&self.registry, pause)).await;
            pause = pause.mul_f64(GROWTH);
        }
        false
    }
}

/// The JSON of an EventList.
fn event_list(events: &[Bytes]) -> Bytes {
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
