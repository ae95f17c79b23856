//! Annotations of slow requests with the latency of each layer.

use std::time::Duration;

use mizzen_value::time::duration_text;

/// Kubernetes: only slower requests are annotated (endpoints/filters/audit.go).
const LONG: Duration = Duration::from_millis(500);

/// A layer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The user is identified.
    Authentication,
    /// Impersonation is authorized.
    Impersonation,
    /// The request waits for its seats.
    QueueWait,
    /// The request is authorized.
    Authorization,
    /// Mutating webhooks are called.
    MutatingWebhook,
    /// Validating webhooks are called.
    ValidatingWebhook,
    /// Upstream's is called etcd.
    Storage,
    /// Writing the response body.
    Serialization,
}

/// The name of each layer in annotations.
const LAYERS: [(Layer, &str); 8] = [
    (Layer::Authentication, "authentication"),
    (Layer::Impersonation, "impersonation"),
    (Layer::QueueWait, "apf-queue-wait"),
    (Layer::Authorization, "authorization"),
    (Layer::MutatingWebhook, "mutating-webhook"),
    (Layer::ValidatingWebhook, "validating-webhook"),
    (Layer::Storage, "etcd"),
    (Layer::Serialization, "serialize-response-object"),
];

/// The latency of each layer.
#[derive(Debug, Default)]
pub(super) struct Latencies([Duration; LAYERS.len()]);

impl Latencies {
    pub(super) fn add(&mut self, layer: Layer, took: Duration) {
        self.0[layer as usize] += took;
    }

    /// The annotations of a request that took `total`.
    pub(super) fn annotations(&self, total: Duration) -> Vec<(String, String)> {
        let each = LAYERS
            .iter()
            .map(|(layer, word)| (*word, self.0[*layer as usize]));
        let mut said: Vec<_> = each.filter(|(_, took)| !took.is_zero()).collect();
        if total <= LONG || said.is_empty() {
            return Vec::new();
        }
        said.push(("total", total));
        said.into_iter()
            .map(|(word, took)| {
                let nanos = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
                let key = format!("apiserver.latency.k8s.io/{word}");
                (key, duration_text(nanos))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(total: u64, parts: &[(Layer, u64)]) -> Vec<String> {
        let mut latencies = Latencies::default();
        parts
            .iter()
            .for_each(|(layer, millis)| latencies.add(*layer, Duration::from_millis(*millis)));
        let said = latencies
            .annotations(Duration::from_millis(total))
            .into_iter();
        said.map(|(key, text)| format!("{key}={text}")).collect()
    }

    #[test]
    fn the_latency_of_slow_steps_is_annotated() {
        let parts = [
            (Layer::Storage, 300),
            (Layer::Serialization, 1),
            (Layer::Storage, 200),
            (Layer::QueueWait, 7),
        ];
        let expected = [
            "apf-queue-wait=7ms",
            "etcd=500ms",
            "serialize-response-object=1ms",
            "total=501ms",
        ];
        assert_eq!(
            said(501, &parts),
            expected.map(|text| format!("apiserver.latency.k8s.io/{text}"))
        );
        assert!(said(500, &parts).is_empty(), "that is not long");
        assert!(said(501, &[]).is_empty(), "nobody knows where");
    }
}
