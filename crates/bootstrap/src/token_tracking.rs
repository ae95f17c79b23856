//! The ConfigMap with the date since when uses of legacy service account tokens are tracked. The controller that deletes
//! unused tokens depends on it.

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::{Value, time, value};
use tokio::time::{Instant, sleep};

use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// The minimum time between creations, so that several servers do not fight over it.
const CREATE_INTERVAL: Duration = Duration::from_secs(30 * 60);
/// The polling interval. A watch would deliver every other ConfigMap as well.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Reconciles the ConfigMap. Never returns.
pub async fn reconcile(server: Server) {
    let mut tracking = LegacyTokenTracking {
        client: LoopbackClient::new(&server, KUBE_APISERVER),
        server,
        created: None,
    };
    loop {
        match tracking.ensure().await {
            Ok(()) => tracking
                .server
                .complete(&["poststarthook/start-legacy-token-tracking-controller"]),
            Err(error) => tracing::debug!(%error, "cannot write the date of legacy token tracking"),
        }
        sleep(POLL_INTERVAL).await;
    }
}

struct LegacyTokenTracking {
    server: Server,
    client: LoopbackClient,
    /// When it was last created.
    created: Option<Instant>,
}

impl LegacyTokenTracking {
    /// Creates the ConfigMap, or corrects its date.
    async fn ensure(&mut self) -> Result<(), String> {
        let own = format!("{MAPS}/{NAME}");
        let (code, mut map) = self.client.call(Method::GET, &own, None).await?;
        let today = self.server.registry().timestamp()[..10].to_owned();
        match code {
            404 if self
                .created
                .is_some_and(|created| created.elapsed() < CREATE_INTERVAL) => {}
            404 => {
                self.client
                    .call(Method::POST, MAPS, Some(&config_map(&today)))
                    .await?;
                self.created = Some(Instant::now());
            }
            _ if is_date(map["data"]["since"].str()) => {}
            _ => {
                map.entry("data").set("since", today);
                self.client.call(Method::PUT, &own, Some(&map)).await?;
            }
        }
        Ok(())
    }
}

fn config_map(day: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": "kube-system" },
        "data": { "since": day }
    })
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && time::to_unix(&format!("{text}T00:00:00Z")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_apiserver::Options;
    use mizzen_apiserver::clock::{CountingRandom, VirtualClock};
    use mizzen_registry::{Registry, Store};
    use std::sync::Arc;

    /// The date, if the ConfigMap exists.
    async fn since(client: &LoopbackClient) -> String {
        let (_, map) = client
            .call(Method::GET, &format!("{MAPS}/{NAME}"), None)
            .await
            .unwrap();
        map["data"]["since"].str().into()
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_date_is_corrected_and_a_deleted_config_map_is_created_later() {
        let clock = Arc::new(VirtualClock::starting_at(1_700_000_000));
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            clock,
            Arc::new(CountingRandom::default()),
        );
        let server = mizzen_controlplane::server(registry, Options::default());
        let client = LoopbackClient::new(&server, KUBE_APISERVER);
        let namespace = value!({ "metadata": { "name": "kube-system" } });
        client
            .call(Method::POST, "/api/v1/namespaces", Some(&namespace))
            .await
            .unwrap();
        tokio::spawn(reconcile(server.clone()));
        sleep(POLL_INTERVAL).await;
        assert_eq!(since(&client).await, "2023-11-14");

        let own = format!("{MAPS}/{NAME}");
        client
            .call(Method::PUT, &own, Some(&config_map("yesterday")))
            .await
            .unwrap();
        sleep(2 * POLL_INTERVAL).await;
        assert_eq!(since(&client).await, "2023-11-14");

        client.call(Method::DELETE, &own, None).await.unwrap();
        sleep(2 * POLL_INTERVAL).await;
        assert_eq!(
            since(&client).await,
            "",
            "another server may have deleted it on purpose"
        );
        sleep(CREATE_INTERVAL).await;
        assert_eq!(since(&client).await, "2023-11-14");
    }

    #[test]
    fn a_date_must_exist() {
        for (text, expected) in [
            ("2023-11-14", true),
            ("2023-02-30", false),
            ("", false),
            ("2023-11-14T", false),
        ] {
            assert_eq!(is_date(text), expected, "{text}");
        }
    }
}
