//! The client-side rate limit.

use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use mizzen_apiserver::User;
use mizzen_sdk::rate_limit::RateLimitLayer;
use mizzen_sdk::watch::ListWatch;
use tokio::time::{Instant, timeout};
use tower::Layer;

use crate::start;

/// Sends requests at once and returns the latency of each in milliseconds.
async fn answered(client: &Client, n_requests: usize) -> Vec<u128> {
    let start = Instant::now();
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut answered = join_all((0..n_requests).map(|_| async {
        api.get_opt("a").await.unwrap();
        start.elapsed().as_millis()
    }))
    .await;
    answered.sort();
    answered
}

#[tokio::test(start_paused = true)]
async fn burst_passes_at_once_and_the_rest_at_the_rate() {
    let cluster = start().await;
    let server = cluster.server().in_process(User::master("admin"), "test");
    let client = Client::new(RateLimitLayer::new(2.0, 3).layer(server), "default");
    assert_eq!(answered(&client, 6).await, [0, 0, 0, 500, 1000, 1500]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        answered(&client, 4).await,
        [0, 0, 0, 500],
        "the bucket never holds more than its burst"
    );
}

#[tokio::test(start_paused = true)]
async fn zero_means_default_and_negative_means_unlimited() {
    let cluster = start().await;
    let client = |layer: RateLimitLayer| layer.wrap(cluster.client());
    for layer in [RateLimitLayer::new(0.0, 0), RateLimitLayer::default()] {
        let expected: Vec<u128> = [0; 10].into_iter().chain([200, 400]).collect();
        assert_eq!(answered(&client(layer), 12).await, expected);
    }
    assert_eq!(
        answered(&client(RateLimitLayer::new(-1.0, 1)), 50).await,
        [0; 50]
    );
}

#[tokio::test(start_paused = true)]
async fn clients_of_one_layer_share_its_tokens() {
    let cluster = start().await;
    let layer = RateLimitLayer::new(1.0, 2);
    let (one, other) = (
        layer.wrap(cluster.client()),
        layer.clone().wrap(cluster.client()),
    );
    assert_eq!(one.default_namespace(), "default");
    assert_eq!(answered(&one, 2).await, [0, 0]);
    assert_eq!(answered(&other, 1).await, [1000]);
}

#[tokio::test(start_paused = true)]
async fn watches_take_no_token() {
    let cluster = start().await;
    let client = RateLimitLayer::new(1.0, 1).wrap(cluster.client());
    let start = Instant::now();
    let source: ListWatch<ConfigMap> = ListWatch::namespaced(client.clone(), "default");
    for _ in 0..5 {
        source.watch("", 60).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(answered(&client, 2).await, [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn dropped_request_takes_no_token() {
    let cluster = start().await;
    let client = RateLimitLayer::new(1.0, 1).wrap(cluster.client());
    assert_eq!(answered(&client, 1).await, [0]);
    for _ in 0..3 {
        assert!(
            timeout(Duration::from_millis(100), answered(&client, 1))
                .await
                .is_err()
        );
    }
    assert_eq!(answered(&client, 2).await, [700, 1700]);
}
