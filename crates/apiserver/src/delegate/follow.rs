//! Follows a collection of the main server: a list, then a watch, for ever.
//!
//! A failure is logged, and after a pause, which doubles with each failure, everything is listed again.

use std::time::Duration;

use http_body_util::BodyExt as _;
use mizzen_outgoing::jittered;
use mizzen_value::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Upstream;

/// How many objects one page of a list has.
const PAGE: usize = 500;
/// How long one watch lasts. Watches are short, so that a dead connection is noticed soon.
const WATCH_SECONDS: u64 = 60;
/// How long a watch may be silent.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS + 15);
/// The largest watch event.
const MAX_EVENT: usize = 16 * 1024 * 1024;
/// The first pause after a failure, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// What happened to a collection.
pub(super) enum CollectionChange {
    /// These are all objects.
    All(Vec<Value>),
    /// An object was created or updated.
    Put(Value),
    /// An object was deleted.
    Deleted(Value),
}

/// Keeps what a collection holds.
pub(super) trait CollectionSink: Sync {
    /// Applies a change.
    fn apply(&self, change: CollectionChange) -> impl Future<Output = Result<(), String>> + Send;

    /// The collection cannot be followed at the moment.
    fn fail(&self, problem: &str);
}

/// Why a watch ended.
#[derive(PartialEq)]
enum WatchEnd {
    /// It took its time.
    Closed,
    /// Its version is too old.
    Expired,
}

impl Upstream {
    /// Follows the collection at a path, of which `selector` (a part of a query) selects some objects. Never ends.
    pub(super) async fn follow_collection(
        &self,
        path: &str,
        selector: &str,
        sink: &impl CollectionSink,
    ) {
        let [mut pause, longest] = PAUSES;
        loop {
            let started = Instant::now();
            if let Err(problem) = self.list_and_watch(path, selector, sink).await {
                tracing::warn!(
                    problem,
                    path,
                    "cannot follow the main API server, will retry"
                );
                sink.fail(&problem);
                // It worked for a while.
                if started.elapsed() > longest {
                    pause = PAUSES[0];
                }
                sleep(jittered(&self.0.registry, pause)).await;
                pause = (pause * 2).min(longest);
            }
        }
    }

    async fn list_and_watch(
        &self,
        path: &str,
        selector: &str,
        sink: &impl CollectionSink,
    ) -> Result<(), String> {
        let (objects, mut version) = match self.list(path, selector).await? {
            Some(list) => list,
            None => {
                // The main server does not serve it, so there is none.
                sink.apply(CollectionChange::All(Vec::new())).await?;
                sleep(jittered(&self.0.registry, PAUSES[1])).await;
                return Ok(());
            }
        };
        sink.apply(CollectionChange::All(objects)).await?;
        loop {
            let started = Instant::now();
            let end = self.watch(path, selector, &mut version, sink).await?;
            if end == WatchEnd::Expired {
                return Ok(());
            }
            if started.elapsed() < Duration::from_secs(1) {
                return Err("the watch ended at once".into());
            }
        }
    }

    /// All objects of a collection and its version; none if it is not served.
    pub(super) async fn list(
        &self,
        path: &str,
        selector: &str,
    ) -> Result<Option<(Vec<Value>, String)>, String> {
        let (mut objects, mut token) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={PAGE}&continue={token}&{selector}");
            let (code, mut list) = self
                .request("GET", &page, None)
                .await
                .map_err(|error| error.to_string())?;
            match code {
                200 => {}
                404 => return Ok(None),
                _ => return Err(list["message"].str().to_owned()),
            }
            objects.extend(std::mem::take(list.entry("items").make_list()));
            token = list["metadata"]["continue"]
                .str()
                .bytes()
                .map(|byte| format!("%{byte:02X}"))
                .collect();
            if token.is_empty() {
                let version = list["metadata"]["resourceVersion"].str().to_owned();
                return Ok(Some((objects, version)));
            }
        }
    }

    async fn watch(
        &self,
        path: &str,
        selector: &str,
        version: &mut String,
        sink: &impl CollectionSink,
    ) -> Result<WatchEnd, String> {
        let uri = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}&{selector}"
        );
        let silent = |_| "the watch is silent".to_owned();
        let response = timeout(SILENCE, self.send("GET", &uri, None));
        let response = response.await.map_err(silent)??;
        match response.status().as_u16() {
            200 => {}
            410 => return Ok(WatchEnd::Expired),
            code => return Err(format!("the watch got the status code {code}")),
        }
        let (mut body, mut waiting) = (response.into_body(), Vec::new());
        while let Some(frame) = timeout(SILENCE, body.frame()).await.map_err(silent)? {
            let frame = frame.map_err(|error| error.to_string())?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            waiting.extend_from_slice(&data);
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                let mut event = json::parse(&line).map_err(|error| error.to_string())?;
                let object = std::mem::take(event.entry("object"));
                let seen = object["metadata"]["resourceVersion"].str().to_owned();
                match event["type"].str() {
                    "BOOKMARK" => {}
                    "ADDED" | "MODIFIED" => sink.apply(CollectionChange::Put(object)).await?,
                    "DELETED" => sink.apply(CollectionChange::Deleted(object)).await?,
                    _ if object["code"].int() == 410 => return Ok(WatchEnd::Expired),
                    _ => return Err(object["message"].str().to_owned()),
                }
                *version = seen;
            }
            if waiting.len() > MAX_EVENT {
                return Err("an event of the watch is too large".into());
            }
        }
        Ok(WatchEnd::Closed)
    }
}
