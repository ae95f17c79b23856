//! `/metrics`, `/metrics/resources` and `/configz`.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use mizzen_apiserver::{NonResourceHandler, NonResourceRequest};
use mizzen_metrics::Families;
use mizzen_value::{Value, json};

use super::process_metrics::ProcessMetrics;
use super::status::ComponentStatus;
use crate::command::FeatureMetrics;
use crate::rest_client_metrics::RestClientMetrics;

const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");

/// The metrics of a component, and its configuration.
#[derive(Debug)]
pub(super) struct ComponentEndpoints {
    pub status: ComponentStatus,
    pub configuration: Value,
    /// Whether `/metrics/resources` is served.
    pub has_resource_metrics: bool,
}

impl NonResourceHandler for ComponentEndpoints {
    fn listed_paths(&self) -> Vec<String> {
        let resources = self.has_resource_metrics.then_some("/metrics/resources");
        let paths = ["/configz", "/metrics"].into_iter().chain(resources);
        paths.map(String::from).collect()
    }

    async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
        let (text, media_type) = match request.path {
            "/metrics" => {
                let process = ProcessMetrics {
                    has_start_time: true,
                };
                let families = Families::of(&[
                    self.status.metrics(),
                    &process,
                    &FeatureMetrics,
                    &RestClientMetrics,
                ]);
                (families.to_string(), METRICS_TYPE)
            }
            "/metrics/resources" if self.has_resource_metrics => {
                let families = Families::of(&[self.status.resource_metrics()]);
                (families.to_string(), METRICS_TYPE)
            }
            "/configz" => (
                json::to_string(&self.configuration),
                HeaderValue::from_static("application/json"),
            ),
            _ => return None,
        };
        let mut response = Response::new(text.into());
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, media_type);
        if request.path == "/configz" {
            let nosniff = HeaderValue::from_static("nosniff");
            response
                .headers_mut()
                .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        }
        Some(response)
    }
}
