//! `--kube-api-qps` and `--kube-api-burst`: how many requests a second may a component send?

use clap::Args;
use kube::Client;
use mizzen_sdk::rate_limit::RateLimitLayer;

/// The arguments of the client's rate limit.
#[derive(Args)]
pub(super) struct ClientLimitArgs {
    /// How many requests a second are sent to the server [default: not limited here; the server limits them]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    kube_api_qps: Option<f64>,
    /// How many requests may be sent at once before the rate counts [default: 30, if --kube-api-qps is given]
    #[arg(long, value_name = "N", requires = "kube_api_qps")]
    kube_api_burst: Option<u32>,
}

impl ClientLimitArgs {
    /// The same client, at the rate that flags say. Kubernetes: each controller's client has a limit of its own.
    pub(super) fn limit(&self, client: Client) -> Client {
        self.layer()(client)
    }

    /// Limits clients, each on its own.
    pub(super) fn layer(&self) -> impl Fn(Client) -> Client + Send + Sync + 'static {
        let (qps, burst) = (self.kube_api_qps, self.kube_api_burst.unwrap_or(30));
        move |client| match qps {
            Some(qps) => RateLimitLayer::new(qps, burst).wrap(client),
            None => client,
        }
    }
}
