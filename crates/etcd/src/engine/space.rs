//! One keyspace as a cache: a list in pages, then a watch that goes on while the keyspace is used.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mizzen_store::{Codec, Draft, Event, Feed, FeedChange, KeyMark, Record, Replacement, Revision};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::lease::Leases;
use super::{CATCH_UP_TIMEOUT, EtcdMetrics};
use crate::client::{CallError, Client, PROGRESS_ANSWER, ProgressRequester, Watch};
use crate::messages::{
    self, EventType, KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchResponse,
};

/// How many keys are listed at once.
///
/// Kubernetes: the first page of the watch cache's list has 10,000 (storage/cacher/lister_watcher.go).
const PAGE: i64 = 10_000;

/// How many records of a page are decoded until other tasks run.
const DECODED_AT_ONCE: usize = 100;

/// How many values are read by their keys at once. etcd refuses more than 128 unless it is told (`--max-txn-ops`).
const BATCH: usize = 100;

/// The pauses between attempts to list or watch.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// What readers and writers of a keyspace share with the task that fills it.
pub(super) struct CachedSpace {
    name: Arc<str>,
    /// The prefix of its keys.
    pub(super) prefix: String,
    client: Client,
    metrics: Arc<EtcdMetrics>,
    /// By which its records expire.
    pub(super) leases: Leases,
    /// Writes of this process whose events have not come yet, by key.
    pending: Mutex<HashMap<Arc<str>, Vec<Arc<PendingWrite>>>>,
    /// Asks the watch that runs for its progress.
    progress: Mutex<Option<ProgressRequester>>,
    /// Notified when the watch has not shown what it should in time.
    lags: Notify,
}

/// A write of this process that etcd may commit: its event need not be decoded.
pub(super) struct PendingWrite {
    key: Arc<str>,
    /// The value; none for a delete.
    bytes: Option<Bytes>,
    content: Mutex<Option<(Draft, KeyMark)>>,
    /// The record that was published.
    record: Mutex<Option<Arc<Record>>>,
}

/// Takes a pending write out again when its writer has its answer.
pub(super) struct PendingGuard {
    space: Arc<CachedSpace>,
    write: Arc<PendingWrite>,
}

impl CachedSpace {
    pub(super) fn new(
        name: Arc<str>,
        prefix: String,
        client: Client,
        metrics: Arc<EtcdMetrics>,
        leases: Leases,
    ) -> CachedSpace {
        CachedSpace {
            name,
            prefix,
            client,
            metrics,
            leases,
            pending: Mutex::default(),
            progress: Mutex::default(),
            lags: Notify::new(),
        }
    }

    /// Reports that the watch has not shown a revision in time. One that was silent meanwhile is begun again, at another
    /// member if there is one.
    pub(super) fn report_lag(&self) {
        self.lags.notify_one();
    }

    /// The key in etcd.
    pub(super) fn key(&self, key: &str) -> Bytes {
        [self.prefix.as_str(), key].concat().into()
    }

    /// The keys of this keyspace that begin with `prefix`.
    pub(super) fn range(&self, prefix: &str) -> RangeRequest {
        let key = self.key(prefix);
        RangeRequest {
            range_end: end_of(&key),
            key,
            ..RangeRequest::default()
        }
    }

    /// Reads keys, for an operation as upstream names it.
    pub(super) async fn read(
        &self,
        operation: &'static str,
        request: RangeRequest,
    ) -> Result<RangeResponse, CallError> {
        let began = Instant::now();
        let answer = self.client.range(request).await;
        self.metrics
            .requested(operation, &self.name, began, &answer);
        answer
    }

    /// Reads the values of keys that are there at `revision`, for a list.
    pub(super) async fn values(
        &self,
        keys: &[Bytes],
        revision: Revision,
    ) -> Result<Vec<KeyValue>, CallError> {
        let mut kvs = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            let requests = batch.iter().map(|key| RangeRequest {
                key: key.clone(),
                revision: number(revision),
                ..RangeRequest::default()
            });
            let began = Instant::now();
            let answer = self.client.ranges(requests.collect()).await;
            self.metrics.requested("get", &self.name, began, &answer);
            kvs.extend(answer?.into_iter().flat_map(|range| range.kvs));
        }
        self.metrics.fetched(&self.name, kvs.len());
        Ok(kvs)
    }

    /// Executes a transaction, for an operation as upstream names it.
    pub(super) async fn write(
        &self,
        operation: &'static str,
        request: TxnRequest,
    ) -> Result<TxnResponse, CallError> {
        let began = Instant::now();
        let answer = self.client.txn(request).await;
        self.metrics
            .requested(operation, &self.name, began, &answer);
        answer
    }

    /// The key within the keyspace.
    pub(super) fn own_key<'a>(&self, kv: &'a KeyValue) -> Option<&'a str> {
        let key = kv.key.strip_prefix(self.prefix.as_bytes())?;
        std::str::from_utf8(key).ok()
    }

    /// Expects the event of a write that is about to be sent. `bytes` is none for a delete.
    pub(super) fn expect(
        self: &Arc<CachedSpace>,
        key: &Arc<str>,
        bytes: Option<Bytes>,
        draft: Draft,
        mark: KeyMark,
    ) -> PendingGuard {
        let write = Arc::new(PendingWrite {
            key: key.clone(),
            bytes,
            content: Mutex::new(Some((draft, mark))),
            record: Mutex::default(),
        });
        let mut pending = self.pending.lock();
        let writes = pending.entry(key.clone()).or_default();
        writes.push(write.clone());
        PendingGuard {
            space: self.clone(),
            write,
        }
    }

    /// The pending write that led to a change, if this process made it.
    fn pending(&self, key: &str, bytes: Option<&Bytes>) -> Option<Arc<PendingWrite>> {
        let pending = self.pending.lock();
        let mut writes = pending.get(key)?.iter();
        let write = writes.find(|write| write.bytes.as_ref() == bytes)?;
        Some(write.clone())
    }

    /// Asks etcd how far the watch has come.
    pub(super) fn request_progress(&self) {
        if let Some(progress) = &*self.progress.lock() {
            progress.request_progress();
        }
    }
}

impl PendingGuard {
    /// The record of `revision`, as it was published; or made now, if the cache has not shown it.
    pub(super) fn record(&self, revision: Revision, codec: &dyn Codec, space: &str) -> Arc<Record> {
        let published = self.write.record.lock().take();
        if let Some(record) = published.filter(|record| record.revision == revision) {
            return record;
        }
        let content = self.write.content.lock().take();
        let (draft, mark) = content.unwrap_or_else(|| match &self.write.bytes {
            Some(bytes) => codec.decode(space, &self.write.key, bytes),
            None => (Draft::default(), KeyMark::PLAIN),
        });
        Arc::new(Record::committed(
            self.write.key.clone(),
            revision,
            draft,
            mark,
        ))
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let mut pending = self.space.pending.lock();
        if let Some(writes) = pending.get_mut(&self.write.key) {
            writes.retain(|write| !Arc::ptr_eq(write, &self.write));
            if writes.is_empty() {
                pending.remove(&self.write.key);
            }
        }
    }
}

/// Fills a keyspace until the task is aborted.
pub(super) async fn run(
    feed: Feed,
    cached: Arc<CachedSpace>,
    codec: Arc<dyn Codec>,
    has_progress: Arc<AtomicBool>,
) {
    let mut filler = Filler {
        feed,
        cached,
        codec,
        has_progress,
        pause: FIRST_PAUSE,
    };
    loop {
        if let Err(error) = filler.list().await {
            filler.wait(&error, "etcd cannot be listed").await;
            continue;
        }
        // Ends when what follows the last revision was compacted.
        while let Err(error) = filler.watch().await {
            filler.cached.progress.lock().take();
            if error.is_compacted() {
                debug!(resource = %filler.feed.space().name(), "history was compacted, listing again");
                break;
            }
            filler.wait(&error, "watch of etcd ended").await;
        }
    }
}

struct Filler {
    feed: Feed,
    cached: Arc<CachedSpace>,
    codec: Arc<dyn Codec>,
    has_progress: Arc<AtomicBool>,
    pause: Duration,
}

impl Filler {
    async fn wait(&mut self, error: &CallError, event: &'static str) {
        let resource = self.feed.space().name();
        // The client reports a member that cannot be reached, once for all keyspaces; and a watch ends now and then.
        match error.is_unavailable() || self.pause == FIRST_PAUSE {
            true => debug!(%resource, error = error.message, "{event}"),
            false => warn!(%resource, error = error.message, "{event}"),
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    /// Replaces what the keyspace has by what etcd has.
    async fn list(&mut self) -> Result<(), CallError> {
        let cached = self.cached.clone();
        let mut pages = Pages::new(&cached, "", 0, false);
        let mut replacement = None;
        loop {
            let page = match pages.next().await {
                Ok(Some(page)) => page,
                Ok(None) => break,
                Err(error) if error.is_deadline_exceeded() && pages.halve() => {
                    debug!(resource = %cached.name, limit = pages.request.limit, "a page of etcd takes too long, reading smaller ones");
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.pause = FIRST_PAUSE;
            let begin = || self.feed.begin_replacement(pages.revision());
            let replacement = replacement.get_or_insert_with(begin);
            self.add_page(replacement, page).await;
        }
        if let Some(replacement) = replacement {
            self.feed.replace(replacement);
        }
        Ok(())
    }

    /// Adds the records of a page, and lets other tasks run meanwhile.
    async fn add_page(&self, replacement: &mut Replacement, page: Vec<KeyValue>) {
        let space = self.feed.space().name();
        for (index, kv) in page.into_iter().enumerate() {
            if let Some(key) = self.cached.own_key(&kv) {
                let decode = |key: &str| self.codec.decode(space, key, &kv.value);
                replacement.add(key.into(), revision_of(&kv), decode);
            }
            if (index + 1) % DECODED_AT_ONCE == 0 {
                yield_now().await;
            }
        }
    }

    /// Follows all changes after the revision of the keyspace, until the watch breaks.
    async fn watch(&mut self) -> Result<(), CallError> {
        let range = self.cached.range("");
        let after = self.feed.space().revision();
        let request = WatchCreateRequest {
            key: range.key,
            range_end: range.range_end,
            start_revision: number(after) + 1,
            progress_notify: true,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let mut watch: Watch = self.cached.client.watch(request).await?;
        *self.cached.progress.lock() = Some(watch.progress_requester());
        let mut heard = Instant::now();
        loop {
            let response = tokio::select! {
                response = watch.next() => response?,
                () = self.cached.lags.notified() => match heard.elapsed() < CATCH_UP_TIMEOUT {
                    true => continue,
                    false => return Err(watch.give_up()),
                },
            };
            heard = Instant::now();
            self.pause = FIRST_PAUSE;
            self.apply(response);
        }
    }

    fn apply(&mut self, response: WatchResponse) {
        let space = self.feed.space().name().clone();
        if response.events.is_empty() {
            self.cached.metrics.progressed(&space);
            // Kubernetes: what an old etcd answers may be ahead of its events. What any etcd tells from time to time is in
            // line with them, and used whatever the version (storage/etcd3/watcher.go).
            let is_true =
                response.watch_id != PROGRESS_ANSWER || self.has_progress.load(Ordering::Acquire);
            let told = response.header.filter(|_| is_true);
            let revision = told.map_or(0, |header| header.revision);
            self.feed.apply([], revision_from(revision), |_| {});
            return;
        }
        let mut writes: Vec<(Arc<PendingWrite>, Revision)> = Vec::new();
        let mut last = Revision::ZERO;
        let mut changes = Vec::with_capacity(response.events.len());
        for event in response.events {
            let Some(change) = self.change(&space, event, &mut writes) else {
                continue;
            };
            last = change.revision;
            changes.push(change);
        }
        // A writer that waits for the revision finds its record.
        self.feed.apply(changes, last, |events| {
            for (write, revision) in writes {
                write.publish(events, revision);
            }
        });
    }

    /// The change of an event. Adds the write of this process that made it to `writes`.
    fn change(
        &self,
        space: &str,
        event: messages::Event,
        writes: &mut Vec<(Arc<PendingWrite>, Revision)>,
    ) -> Option<FeedChange> {
        let is_put = event.r#type == i32::from(EventType::Put);
        let kv = event.kv?;
        let key = self.cached.own_key(&kv)?;
        let write = self.cached.pending(key, is_put.then_some(&kv.value));
        let put = is_put.then(|| {
            let known = write.as_ref().and_then(|write| write.content.lock().take());
            known.unwrap_or_else(|| self.codec.decode(space, key, &kv.value))
        });
        let revision = revision_of(&kv);
        writes.extend(write.map(|write| (write, revision)));
        Some(FeedChange {
            key: key.into(),
            revision,
            put,
        })
    }
}

impl PendingWrite {
    /// Keeps the record that was published for this write, if it is the one of `revision`.
    fn publish(&self, events: &[Event], revision: Revision) {
        let mine = |event: &&Event| event.revision == revision && event.record.key == self.key;
        if let Some(event) = events.iter().find(mine) {
            *self.record.lock() = Some(event.record.clone());
        }
    }
}

/// The keys of a keyspace that begin with `prefix`, at `revision`, or at the latest one if that is 0.
pub(super) async fn list(
    cached: &CachedSpace,
    prefix: &str,
    revision: i64,
    keys_only: bool,
) -> Result<(Revision, Vec<KeyValue>), CallError> {
    let mut pages = Pages::new(cached, prefix, revision, keys_only);
    let mut kvs = Vec::new();
    while let Some(page) = pages.next().await? {
        kvs.extend(page);
    }
    Ok((pages.revision(), kvs))
}

/// A list at one revision, page by page.
struct Pages<'a> {
    cached: &'a CachedSpace,
    operation: &'static str,
    /// Of the next page.
    request: RangeRequest,
    n_read: usize,
    is_done: bool,
}

impl Pages<'_> {
    fn new<'a>(cached: &'a CachedSpace, prefix: &str, revision: i64, keys_only: bool) -> Pages<'a> {
        Pages {
            cached,
            operation: if keys_only { "listOnlyKeys" } else { "list" },
            request: RangeRequest {
                limit: PAGE,
                revision,
                keys_only,
                ..cached.range(prefix)
            },
            n_read: 0,
            is_done: false,
        }
    }

    /// The revision of the list, which the first page tells.
    fn revision(&self) -> Revision {
        revision_from(self.request.revision)
    }

    /// The next page; none after the last one. After an error it can be read again.
    async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, CallError> {
        if self.is_done {
            return Ok(None);
        }
        let (cached, began) = (self.cached, Instant::now());
        let page = cached.read(self.operation, self.request.clone()).await?;
        if began.elapsed() < cached.client.call_timeout() / 4 {
            self.request.limit = (self.request.limit * 2).min(PAGE);
        }
        if self.request.revision == 0 {
            self.request.revision = page.header.map_or(0, |header| header.revision);
        }
        self.n_read += page.kvs.len();
        match page.kvs.last().filter(|_| page.more) {
            // The key that follows immediately.
            Some(last) => self.request.key = [&last.key[..], &[0]].concat().into(),
            None => {
                self.is_done = true;
                cached.metrics.listed(&cached.name, self.n_read);
            }
        }
        Ok(Some(page.kvs))
    }

    /// Halves the next page. Returns whether it had more than one key.
    fn halve(&mut self) -> bool {
        let has_several = self.request.limit > 1;
        self.request.limit = (self.request.limit / 2).max(1);
        has_several
    }
}

/// The first key after those that begin with `prefix`, which is text: no byte of it is the last one.
fn end_of(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    let last = end
        .last_mut()
        .expect("the prefix of a keyspace is not empty");
    *last += 1;
    end.into()
}

/// The revision in which a key was written, or deleted.
pub(super) fn revision_of(kv: &KeyValue) -> Revision {
    revision_from(kv.mod_revision)
}

pub(super) fn revision_from(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or_default())
}

/// A revision as etcd writes it.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}
