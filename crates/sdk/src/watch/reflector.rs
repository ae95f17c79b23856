//! The reflector: lists a kind, watches it, resumes the watch, and lists again when it must.
//!
//! Invariant: no event is lost. Whatever the connection does, the sink gets either every event
//! after the version that it has, or a list that replaces everything.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::list_watch::{ListWatch, WatchError, WatchEvent, WatchStream};
use super::metrics::Meter;
use crate::cache::{Entry, Store, Version};
use crate::failure_log::FailureLog;
use crate::fifo::{Delta, DeltaFifo};

/// The least watch timeout; up to twice as long by jitter, so that not all watches end at once.
const WATCH_TIME: Duration = Duration::from_secs(300);
/// A watch that ends sooner without an event has failed.
const TOO_SHORT: Duration = Duration::from_secs(1);

/// How long lists and watches may fail before that is logged at warn.
const PATIENCE: Duration = Duration::from_secs(5);

/// Receives the changes of a reflector.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Version};
/// use mizzen_sdk::fifo::Delta;
/// use mizzen_sdk::watch::Sink;
///
/// /// Counts changes.
/// #[derive(Default)]
/// struct Count(usize);
///
/// impl Sink<Object> for Count {
///     fn replace(&mut self, entries: Vec<Entry<Object>>, _: Version) {
///         self.0 = entries.len();
///     }
///     fn change(&mut self, _: Delta<Object>) {
///         self.0 += 1;
///     }
///     fn bookmark(&mut self, _: Version) {}
/// }
///
/// let mut count = Count::default();
/// count.bookmark(Version(7)); // it may be given to `Reflector::new`
/// assert_eq!(count.0, 0);
/// ```
pub trait Sink<K>: Send {
    /// Replaces all known objects.
    fn replace(&mut self, entries: Vec<Entry<K>>, version: Version);

    /// Applies a change of one object.
    fn change(&mut self, delta: Delta<K>);

    /// Advances the version without a change.
    fn bookmark(&mut self, version: Version);

    /// The resync period has passed. A queue adds the known objects again; a store has nothing to
    /// do.
    fn resync(&mut self) {}
}

impl<K: Send + Sync> Sink<K> for DeltaFifo<K> {
    fn replace(&mut self, entries: Vec<Entry<K>>, version: Version) {
        DeltaFifo::replace(self, entries, version);
    }

    fn change(&mut self, delta: Delta<K>) {
        self.push(delta);
    }

    fn bookmark(&mut self, version: Version) {
        self.advance(version);
    }

    fn resync(&mut self) {
        DeltaFifo::resync(self);
    }
}

impl<K: Send + Sync> Sink<K> for Store<K> {
    fn replace(&mut self, entries: Vec<Entry<K>>, version: Version) {
        Store::replace(self, entries, version);
    }

    fn change(&mut self, delta: Delta<K>) {
        let version = delta.entry().version();
        if delta.is_gone() {
            self.remove(&self.key_of(delta.entry()));
        } else {
            self.insert(delta.entry().clone());
        }
        self.advance(version);
    }

    fn bookmark(&mut self, version: Version) {
        self.advance(version);
    }
}

/// Called on every failure; the reflector retries regardless.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::watch::{ErrorHandler, WatchError};
///
/// let on_error: ErrorHandler = Arc::new(|error| eprintln!("{error}; trying again"));
/// on_error(&WatchError::Expired("410".into()));
/// ```
pub type ErrorHandler = Arc<dyn Fn(&WatchError) + Send + Sync>;

/// Changes an object's JSON before it is cached.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::watch::Transform;
/// use serde_json::json;
///
/// let drop_data: Transform = Arc::new(|object| object["data"] = json!(null));
/// let mut object = json!({"data": {"a": "b"}});
/// drop_data(&mut object);
/// assert_eq!(object, json!({"data": null}));
/// ```
pub type Transform = Arc<dyn Fn(&mut serde_json::Value) + Send + Sync>;

/// Reflects a kind into a sink.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::cache::Store;
/// use mizzen_sdk::watch::{ListWatch, Reflector};
///
/// let store: Store<Namespace> = Store::new();
/// tokio::spawn(Reflector::new(ListWatch::all(client), store.clone()).run());
/// while store.get(&Key::cluster("default")).is_none() {
///     tokio::task::yield_now().await;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reflector<K, S> {
    source: ListWatch<K>,
    sink: S,
    /// The back-off after failures.
    pub backoff: Backoff,
    /// Called on failures.
    pub on_error: Option<ErrorHandler>,
    /// Changes objects before they are cached, for example to drop unused fields.
    pub transform: Option<Transform>,
    /// The resync period of the sink; `None` or zero for never.
    pub resync: Option<Duration>,
    /// The counters.
    pub meter: Meter,
    /// The version up to which the sink is complete; `None` if it must list.
    version: Option<Version>,
    /// When the next resync is due; `None` before the first list and without a period.
    next_resync: Option<Instant>,
    failures: FailureLog,
}

impl<K: Send + Sync + 'static, S: Sink<K>> Reflector<K, S> {
    /// Reflects `source` into `sink`.
    pub fn new(source: ListWatch<K>, sink: S) -> Reflector<K, S> {
        Reflector {
            meter: Meter::new(source.name()),
            source,
            sink,
            backoff: Backoff::default(),
            on_error: None,
            transform: None,
            resync: None,
            version: None,
            next_resync: None,
            failures: FailureLog::after(PATIENCE),
        }
    }

    /// Runs until the future is dropped.
    pub async fn run(mut self) -> std::convert::Infallible {
        loop {
            let outcome = match self.version {
                None => self.begin().await,
                Some(version) => self.resume(version).await,
            };
            match outcome {
                Ok(()) => self.failures.recovered(),
                Err(error) => self.recover(&error).await,
            }
        }
    }

    /// Waits, and lists again if the version has expired.
    async fn recover(&mut self, error: &WatchError) {
        self.meter.error();
        if let Some(on_error) = &self.on_error {
            on_error(error);
        }
        let expired = matches!(error, WatchError::Expired(_));
        let path = self.source.path();
        let unlogged = if expired {
            None
        } else {
            self.failures.failed()
        };
        match unlogged {
            Some(unlogged) => tracing::warn!(path, %error, unlogged, "list or watch keeps failing"),
            None => tracing::debug!(path, %error, "list or watch failed"),
        }
        if expired && self.version.take().is_some() {
            return;
        }
        let wait = self.backoff.next_wait();
        sleep(wait).await;
    }

    async fn begin(&mut self) -> Result<(), WatchError> {
        if self.source.initial == super::Initial::Stream {
            let seconds = self.watch_seconds();
            if let Some(stream) = self.source.watch_initial(seconds).await? {
                return self.follow_initial(stream).await;
            }
        }
        self.list().await
    }

    /// Lists page by page, all at one resource version.
    async fn list(&mut self) -> Result<(), WatchError> {
        let started = Instant::now();
        self.meter.begin_list();
        let mut page = self.source.list("", "").await?;
        let mut entries = std::mem::take(&mut page.entries);
        while !page.next.is_empty() {
            page = self.source.list("", &page.next).await?;
            entries.append(&mut page.entries);
        }
        let entries = self.transformed_all(entries)?;
        self.replace(entries, page.as_of(), started);
        Ok(())
    }

    fn replace(&mut self, entries: Vec<Entry<K>>, version: Version, started: Instant) {
        self.meter
            .end_list(entries.len(), version, started.elapsed());
        self.sink.replace(entries, version);
        self.version = Some(version);
        if self.next_resync.is_none() {
            self.schedule_resync();
        }
    }

    fn schedule_resync(&mut self) {
        let period = self.resync.filter(|period| !period.is_zero());
        self.next_resync = period.map(|period| Instant::now() + period);
    }

    async fn follow_initial(&mut self, mut stream: WatchStream<K>) -> Result<(), WatchError> {
        let started = Instant::now();
        self.meter.begin_list();
        let mut entries = Vec::new();
        loop {
            match stream.next().await? {
                // The stream ended before the initial objects were complete: start again.
                None => return Err(broken_off()),
                Some(WatchEvent::Delta(delta)) if !delta.is_gone() => {
                    entries.push(self.transformed(delta.entry().clone())?)
                }
                Some(WatchEvent::Bookmark {
                    version,
                    initial_end: true,
                }) => {
                    self.replace(entries, Version::parse(&version), started);
                    return self.follow(stream).await;
                }
                Some(_) => {}
            }
        }
    }

    async fn resume(&mut self, version: Version) -> Result<(), WatchError> {
        let stream = self
            .source
            .watch(&version.to_string(), self.watch_seconds())
            .await?;
        self.follow(stream).await
    }

    /// Passes on the events of a watch until it ends. One that ends at once without an event has
    /// failed.
    async fn follow(&mut self, stream: WatchStream<K>) -> Result<(), WatchError> {
        self.meter.begin_watch();
        let (started, mut n_said) = (Instant::now(), 0);
        let outcome = self.pass_on(stream, &mut n_said).await;
        let is_short = n_said == 0 && started.elapsed() < TOO_SHORT;
        self.meter.end_watch(n_said, started.elapsed(), is_short);
        match outcome {
            Ok(()) if is_short => Err(broken_off()),
            outcome => outcome,
        }
    }

    async fn pass_on(
        &mut self,
        mut stream: WatchStream<K>,
        n_said: &mut u64,
    ) -> Result<(), WatchError> {
        while let Some(event) = self.resync_until(stream.next()).await? {
            *n_said += 1;
            let version = event.version();
            self.meter
                .event(version, matches!(event, WatchEvent::Delta(_)));
            match event {
                WatchEvent::Delta(delta) => {
                    let delta = self.transformed_delta(delta)?;
                    self.sink.change(delta);
                }
                WatchEvent::Bookmark { .. } => self.sink.bookmark(version),
            }
            self.version = self.version.max(Some(version));
        }
        Ok(())
    }

    /// Waits for `next`, and resyncs the sink whenever that is due meanwhile.
    async fn resync_until<T>(&mut self, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        loop {
            let Some(due) = self.next_resync else {
                return next.await;
            };
            tokio::select! {
                biased;
                () = sleep_until(due) => {
                    self.sink.resync();
                    self.schedule_resync();
                }
                outcome = &mut next => return outcome,
            }
        }
    }

    fn watch_seconds(&self) -> u32 {
        self.backoff.jitter(WATCH_TIME).as_secs() as u32
    }

    fn transformed(&self, entry: Entry<K>) -> Result<Entry<K>, WatchError> {
        let Some(transform) = &self.transform else {
            return Ok(entry);
        };
        let mut value = serde_json::from_slice(entry.text())?;
        transform(&mut value);
        Ok(Entry::of_json(serde_json::to_vec(&value)?)?)
    }

    fn transformed_all(&self, entries: Vec<Entry<K>>) -> Result<Vec<Entry<K>>, WatchError> {
        match self.transform {
            None => Ok(entries),
            Some(_) => entries
                .into_iter()
                .map(|entry| self.transformed(entry))
                .collect(),
        }
    }

    fn transformed_delta(&self, delta: Delta<K>) -> Result<Delta<K>, WatchError> {
        Ok(match delta {
            Delta::Added(entry) => Delta::Added(self.transformed(entry)?),
            Delta::Updated(entry) => Delta::Updated(self.transformed(entry)?),
            Delta::Deleted(entry) => Delta::Deleted(self.transformed(entry)?),
            other => other,
        })
    }
}

fn broken_off() -> WatchError {
    std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()
}
