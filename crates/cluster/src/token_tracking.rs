//! Says since when it is noted which tokens are used that are kept in secrets: whoever throws away unused ones must not
//! trust what was not noted yet.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use mizzen_apiserver::{Body, Server};
use mizzen_object::{Value, time, value};
use tokio::time::{Instant, sleep, timeout};

use crate::itself::{Client, KUBE_APISERVER};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// How often it is made, at most: several servers must not fight over it.
const EVERY: Duration = Duration::from_secs(30 * 60);
/// How long to wait before the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs as long as the server does.
pub async fn keep(server: Server) {
    let mut tracking = Tracking { client: Client::new(&server, KUBE_APISERVER), server, made: None };
    loop {
        if let Err(error) = tracking.follow().await {
            tracing::debug!(%error, "cannot say since when tokens are tracked");
        }
        sleep(PAUSE).await;
    }
}

struct Tracking {
    server: Server,
    client: Client,
    /// When it was made last.
    made: Option<Instant>,
}

impl Tracking {
    /// Looks whenever something has changed, until the watch ends.
    async fn follow(&mut self) -> Result<(), String> {
        let mut events = self.watch().await?;
        loop {
            let wait = self.ensure().await?;
            // If nothing happens, it is time for another look.
            if let Ok(None) = timeout(wait, events.frame()).await {
                return Ok(());
            }
        }
    }

    async fn watch(&self) -> Result<Body, String> {
        let path = format!("{MAPS}?watch=true&fieldSelector=metadata.name={NAME}");
        let answer = self.client.send(Method::GET, &path, None).await?;
        match answer.status().as_u16() {
            200 => Ok(answer.into_body()),
            code => Err(format!("cannot watch: {code}")),
        }
    }

    /// Makes it, or puts it right. Says how long to wait before another look.
    async fn ensure(&mut self) -> Result<Duration, String> {
        let own = format!("{MAPS}/{NAME}");
        let (code, map) = self.client.call(Method::GET, &own, None).await?;
        let today = self.server.registry().timestamp()[..10].to_owned();
        let since_made = self.made.map_or(EVERY, |made| made.elapsed());
        match code {
            404 if since_made < EVERY => return Ok(EVERY - since_made),
            404 => {
                self.client.call(Method::POST, MAPS, Some(&since(&today))).await?;
                self.made = Some(Instant::now());
            }
            _ if is_day(map["data"]["since"].str()) => {}
            _ => drop(self.client.call(Method::PUT, &own, Some(&corrected(map, &today))).await?),
        }
        Ok(EVERY)
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

    #[test]
    fn a_day_is_one_that_was() {
        for (text, expected) in
            [("2023-11-14", true), ("2023-02-30", false), ("", false), ("2023-11-14T", false)]
        {
            assert_eq!(is_day(text), expected, "{text}");
        }
    }
}
