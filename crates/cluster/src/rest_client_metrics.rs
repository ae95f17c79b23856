//! Metrics of the clients of this process, under upstream's names (component-base/metrics/prometheus/restclient).

use std::time::Duration;

use http::{Method, StatusCode};
use mizzen_metrics::{Collector, CounterVec, Families, HistogramVec};

/// Upper bounds of a request, in seconds.
const BOUNDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

static REQUESTS: CounterVec<3> = CounterVec::new(
    "rest_client_requests_total",
    "Requests to API servers, by code.",
    ["code", "method", "host"],
);
static DURATIONS: HistogramVec<2> = HistogramVec::new(
    "rest_client_request_duration_seconds",
    "How long it took until the responses of API servers began.",
    ["verb", "host"],
    &BOUNDS,
);

/// The metrics of all clients that send requests over the network.
#[derive(Debug)]
pub(crate) struct RestClientMetrics;

impl RestClientMetrics {
    /// Observes a request. `code` is none if there was no response.
    pub(crate) fn observe(host: &str, method: &Method, code: Option<StatusCode>, took: Duration) {
        // Kubernetes: client-go/rest/request.go.
        let code = code.map_or("<error>".to_owned(), |code| code.as_str().to_owned());
        let labels = [
            code.into(),
            method.to_string().into(),
            host.to_owned().into(),
        ];
        REQUESTS.add(labels, 1);
        let labels = [method.to_string().into(), host.to_owned().into()];
        DURATIONS.observe(labels, took.as_secs_f64());
    }
}

impl Collector for RestClientMetrics {
    fn collect(&self, families: &mut Families) {
        REQUESTS.collect(families);
        DURATIONS.collect(families);
    }
}
