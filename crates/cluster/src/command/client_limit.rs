//! `--kube-api-qps` and `--kube-api-burst`: the client-side rate limit of a component.

use clap::Args;
use kube::Client;
use mizzen_sdk::rate_limit::RateLimitLayer;

/// The arguments of the client's rate limit.
#[derive(Args)]
pub(super) struct ClientLimitArgs {
    /// Send at most this many requests per second to the API server [default: no client-side limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    kube_api_qps: Option<f64>,
    /// Allow bursts of this many requests [default: 30 with --kube-api-qps]
    #[arg(long, value_name = "N", requires = "kube_api_qps")]
    kube_api_burst: Option<u32>,
}

impl ClientLimitArgs {
    /// The client with the rate limit. Kubernetes: the client of each controller has a limit of its own.
    pub(super) fn limit(&self, client: Client) -> Client {
        self.layer()(client)
    }

    /// Adds a rate limit to each client.
    pub(super) fn layer(&self) -> impl Fn(Client) -> Client + Send + Sync + 'static {
        let (qps, burst) = (self.kube_api_qps, self.kube_api_burst.unwrap_or(30));
        move |client| match qps {
            Some(qps) => RateLimitLayer::new(qps, burst).wrap(client),
            None => client,
        }
    }
}
