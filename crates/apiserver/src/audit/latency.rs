//! Where did the time go? Told of requests that took long.

use std::time::Duration;

use mizzen_object::time::duration_text;

/// Kubernetes: only requests that took longer say where (endpoints/filters/audit.go).
const LONG: Duration = Duration::from_millis(500);

/// A part of the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Authentication,
    Impersonation,
    QueueWait,
    Authorization,
    MutatingWebhook,
    ValidatingWebhook,
}

const LAYERS: usize = 6;

impl Layer {
    fn word(self) -> &'static str {
        match self {
            Layer::Authentication => "authentication",
            Layer::Impersonation => "impersonation",
            Layer::QueueWait => "apf-queue-wait",
            Layer::Authorization => "authorization",
            Layer::MutatingWebhook => "mutating-webhook",
            Layer::ValidatingWebhook => "validating-webhook",
        }
    }

    const ALL: [Layer; LAYERS] = [
        Layer::Authentication,
        Layer::Impersonation,
        Layer::QueueWait,
        Layer::Authorization,
        Layer::MutatingWebhook,
        Layer::ValidatingWebhook,
    ];
}

/// How long each part of the way took.
#[derive(Debug, Default)]
pub(super) struct Latencies([Duration; LAYERS]);

impl Latencies {
    pub fn add(&mut self, layer: Layer, took: Duration) {
        self.0[layer as usize] += took;
    }

    /// What is said of a request that took `total`.
    pub fn annotations(&self, total: Duration) -> Vec<(String, String)> {
        let each = Layer::ALL.iter().zip(&self.0).filter(|(_, took)| !took.is_zero());
        let mut said: Vec<_> = each.map(|(layer, took)| (layer.word(), *took)).collect();
        if total <= LONG || said.is_empty() {
            return Vec::new();
        }
        said.push(("total", total));
        said.into_iter()
            .map(|(word, took)| (format!("apiserver.latency.k8s.io/{word}"), text(took)))
            .collect()
    }
}

fn text(took: Duration) -> String {
    duration_text(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX))
}
