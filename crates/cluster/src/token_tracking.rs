//! Says since when it is noted which tokens are used that are kept in secrets: whoever throws away unused ones must not
//! trust what was not noted yet.

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::{Value, time, value};
use tokio::time::{Instant, sleep};

use crate::itself::{Client, KUBE_APISERVER};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// How often it is made, at most: several servers must not fight over it.
const EVERY: Duration = Duration::from_secs(30 * 60);
/// How often it is looked at. A watch would hear of every other ConfigMap as well.
const LOOK: Duration = Duration::from_secs(10);

/// Runs as long as the server does.
pub(crate) async fn keep(server: Server) {
    let mut tracking = Tracking {
        client: Client::new(&server, KUBE_APISERVER),
        server,
        made: None,
    };
    loop {
        match tracking.ensure().await {
            Ok(()) => tracking
                .server
                .complete(&["poststarthook/start-legacy-token-tracking-controller"]),
            Err(error) => tracing::debug!(%error, "cannot say since when tokens are tracked"),
        }
        sleep(LOOK).await;
    }
}

struct Tracking {
    server: Server,
    client: Client,
    /// When it was made last.
    made: Option<Instant>,
}

impl Tracking {
    /// Makes it, or puts it right.
    async fn ensure(&mut self) -> Result<(), String> {
        let own = format!("{MAPS}/{NAME}");
        let (code, map) = self.client.call(Method::GET, &own, None).await?;
        let today = self.server.registry().timestamp()[..10].to_owned();
        match code {
            404 if self.made.is_some_and(|made| made.elapsed() < EVERY) => {}
            404 => {
                self.client
                    .call(Method::POST, MAPS, Some(&since(&today)))
                    .await?;
                self.made = Some(Instant::now());
            }
            _ if is_day(map["data"]["since"].str()) => {}
            _ => drop(
                self.client
                    .call(Method::PUT, &own, Some(&corrected(map, &today)))
                    .await?,
            ),
        }
        Ok(())
    }
}

fn since(day: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": "kube-system" },
        "data": { "since": day }
    })
}

fn corrected(mut map: Value, day: &str) -> Value {
    map.entry("data").set("since", day);
    map
}

fn is_day(text: &str) -> bool {
    text.len() == 10 && time::to_unix(&format!("{text}T00:00:00Z")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_apiserver::Options;
    use mizzen_apiserver::seams::{Counter, VirtualClock};
    use mizzen_registry::{Registry, Store};
    use std::sync::Arc;

    /// What it says, if it is there.
    async fn said(client: &Client) -> String {
        let (_, map) = client
            .call(Method::GET, &format!("{MAPS}/{NAME}"), None)
            .await
            .unwrap();
        map["data"]["since"].str().into()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_spoilt_is_put_right_and_what_was_deleted_is_made_again_later() {
        let clock = Arc::new(VirtualClock::starting_at(1_700_000_000));
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            clock,
            Arc::new(Counter::default()),
        );
        let server = Server::new(registry, Options::default());
        let client = Client::new(&server, KUBE_APISERVER);
        let namespace = value!({ "metadata": { "name": "kube-system" } });
        client
            .call(Method::POST, "/api/v1/namespaces", Some(&namespace))
            .await
            .unwrap();
        tokio::spawn(keep(server.clone()));
        sleep(LOOK).await;
        assert_eq!(said(&client).await, "2023-11-14");

        let own = format!("{MAPS}/{NAME}");
        client
            .call(Method::PUT, &own, Some(&since("yesterday")))
            .await
            .unwrap();
        sleep(2 * LOOK).await;
        assert_eq!(said(&client).await, "2023-11-14");

        client.call(Method::DELETE, &own, None).await.unwrap();
        sleep(2 * LOOK).await;
        assert_eq!(
            said(&client).await,
            "",
            "another server may have deleted it on purpose"
        );
        sleep(EVERY).await;
        assert_eq!(said(&client).await, "2023-11-14");
    }

    #[test]
    fn a_day_is_one_that_was() {
        for (text, expected) in [
            ("2023-11-14", true),
            ("2023-02-30", false),
            ("", false),
            ("2023-11-14T", false),
        ] {
            assert_eq!(is_day(text), expected, "{text}");
        }
    }
}
