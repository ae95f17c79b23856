//! `GET` with `watch`: the events of a collection, as they happen.
//!
//! A watch pulls: it looks for events only when its client has room for them. A client that does not read
//! costs a cursor and nothing else, and is told when it has fallen too far behind.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mizzen_object::schema::{self, Struct};
use mizzen_object::{Status, proto};
use mizzen_registry::{Event, Object, Resource, Revision, Watch, WatchOptions};
use mizzen_value::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::Call;
use super::frames::{END, Frames, json_frame, start};
use crate::answer::{self, Accept, Answer, Body, Encoding, Form, Source, Table};
use crate::flowcontrol::Held;
use crate::metrics::Gauge;
use crate::options::ListQuery;
use crate::server::Inner;

/// How often a client that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn watch(call: &Call<'_>) -> Result<Answer, Status> {
    let Call {
        server,
        request,
        path,
        resource,
        accept,
        ..
    } = call;
    let query = &request.query;
    let read = ListQuery::parse(resource.kind(), &path.namespace, &path.name, query, true)?;
    let initial = query.bool("sendInitialEvents");
    let options = WatchOptions {
        selection: read.selection,
        version: query.text("resourceVersion").into(),
        initial,
    };
    let bookmarks = query.bool("allowWatchBookmarks").unwrap_or(false);
    let lasts = duration(server, read.timeout);
    let writer = Writer::new(call);

    let watch = match server.registry.watch(resource, options).await {
        // Kubernetes: an expired or future version is an ERROR event of the stream, not a status code.
        Err(status) if !matches!(status.code, 410 | 504) => return Err(status),
        watch => watch,
    };
    check_form(call)?;
    let stream = match watch {
        Ok(watch) => {
            let mut held = request.turn.take();
            if watch.progress().is_some() {
                held.begun();
            }
            // Kubernetes: a watch without a version wants initial events (internalversion/defaults.go, `SetListOptionsDefaults`).
            let is_default = query.text("resourceVersionMatch").is_empty()
                && matches!(query.text("resourceVersion"), "" | "0");
            let announces = bookmarks && initial.unwrap_or(is_default);
            let feed = Feed::Store(Box::new(watch));
            let mut stream = Stream::new(server, feed, writer, lasts, bookmarks, announces);
            stream.held = held;
            stream
        }
        Err(status) => Stream::failed(server, writer, lasts, &status),
    };
    Ok(answer::answer(
        200,
        stream_type(*accept),
        Body::stream(stream),
    ))
}

/// Checks that events can be written as they are asked for. Kubernetes: that comes when there is something to write
/// (handlers/response.go).
fn check_form(call: &Call) -> Result<(), Status> {
    call.check_include()?;
    match call.accept.encoding {
        Encoding::Yaml => Err(answer::stream_not_acceptable()),
        _ => Ok(()),
    }
}

/// Events of a storage that the server's author wrote. There are no bookmarks: nobody knows its versions.
pub(super) fn watch_own(call: &Call<'_>, events: Receiver<Event>) -> Result<Answer, Status> {
    let Call {
        server,
        request,
        accept,
        ..
    } = call;
    check_form(call)?;
    let asked = request
        .query
        .int("timeoutSeconds")
        .map_err(Status::bad_request)?;
    let writer = Writer::new(call);
    let lasts = duration(server, asked);
    let mut stream = Stream::new(server, Feed::Own(events), writer, lasts, false, false);
    stream.held = request.turn.take();
    // What was there at the start cannot be told from what came later.
    stream.held.begun();
    Ok(answer::answer(
        200,
        stream_type(*accept),
        Body::stream(stream),
    ))
}

/// How long a watch lasts: as its client says, or between once and twice what the server is set up for.
fn duration(server: &Inner, asked: Option<i64>) -> Duration {
    let seconds = asked
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0);
    let least = server.options.min_request_timeout;
    Duration::from_secs(seconds.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        server.registry.random().fill(&mut bytes);
        least
            + u64::from_le_bytes(bytes)
                .checked_rem(least)
                .unwrap_or_default()
    }))
}

fn stream_type(accept: Accept) -> &'static str {
    match accept.encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    }
}

/// The step that a stream is waiting for.
type Pending = Pin<Box<dyn Future<Output = (Feed, Option<Result<Vec<Event>, Status>>)> + Send>>;

/// Where events come from.
enum Feed {
    /// The store.
    Store(Box<Watch>),
    /// A storage that the server's author wrote.
    Own(Receiver<Event>),
}

impl Feed {
    /// The next events; none if there will be no more.
    async fn next(&mut self) -> Option<Result<Vec<Event>, Status>> {
        match self {
            Feed::Store(watch) => Some(watch.next().await),
            Feed::Own(events) => events.recv().await.map(|event| Ok(vec![event])),
        }
    }
}

/// How much is put together before it is sent. What nobody reads must be small, for there are many watchers.
const CHUNK: usize = 32 * 1024;

/// A watch as the body of a response.
struct Stream {
    server: Arc<Inner>,
    pending: Option<Pending>,
    /// Events that have happened and have not been written. They are shared with all watchers; their text may not be.
    events: std::vec::IntoIter<Event>,
    writer: Writer,
    end: Pin<Box<Sleep>>,
    bookmarks: Option<Interval>,
    /// Whether the client is told when everything that was there has been sent.
    announces: bool,
    /// Resolves when the server stops, or the kind is no longer what it was.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// What is to be sent before anything else.
    first: VecDeque<Bytes>,
    last_version: Revision,
    gauge: Gauge,
    /// Its place, until what was there at the start has been sent.
    held: Held,
}

impl Stream {
    fn new(
        server: &Arc<Inner>,
        feed: Feed,
        writer: Writer,
        lasts: Duration,
        bookmarks: bool,
        announces: bool,
    ) -> Stream {
        let bookmarks = bookmarks.then(|| {
            let mut ticks = interval_at(Instant::now() + BOOKMARK_EVERY, BOOKMARK_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let ending = ending(server, &writer.resource);
        let gauge = server.metrics.watching(writer.resource.kind());
        Stream {
            server: server.clone(),
            pending: Some(next(feed)),
            events: Vec::new().into_iter(),
            writer,
            end: Box::pin(sleep(lasts)),
            bookmarks,
            announces,
            stopping: ending,
            first: VecDeque::new(),
            last_version: Revision::ZERO,
            gauge,
            held: Held::default(),
        }
    }

    /// A stream that says what went wrong and ends.
    fn failed(server: &Arc<Inner>, mut writer: Writer, lasts: Duration, status: &Status) -> Stream {
        let first = VecDeque::from([writer.error(&server.types.status, status)]);
        Stream {
            server: server.clone(),
            pending: None,
            events: Vec::new().into_iter(),
            end: Box::pin(sleep(lasts)),
            bookmarks: None,
            announces: false,
            stopping: Box::pin(std::future::pending()),
            first,
            last_version: Revision::ZERO,
            gauge: server.metrics.watching(writer.resource.kind()),
            held: Held::default(),
            writer,
        }
    }

    /// Whether the time is up or the server is stopping, told without waiting for it.
    fn is_over(&self) -> bool {
        Instant::now() >= self.end.deadline() || self.server.is_stopping()
    }

    /// The next events in one buffer, if there are any.
    fn frames(&mut self) -> Option<Bytes> {
        let (mut frames, mut length) = (Vec::new(), 0);
        while length < CHUNK && self.first.is_empty() {
            let Some(event) = self.events.next() else {
                break;
            };
            let Some(frame) = self.frame(event) else {
                continue;
            };
            length += frame.len();
            frames.push(frame);
        }
        join(frames)
    }

    /// An event, or what stands before its object: a large one is not copied.
    fn frame(&mut self, event: Event) -> Option<Bytes> {
        let now = self.server.registry.now();
        match event {
            Event::Object(change, object)
                if object.json.len() >= CHUNK && self.writer.is_plain(&object) =>
            {
                self.first
                    .extend([object.json.clone(), Bytes::from_static(END)]);
                Some(start(change.word(), 0).into())
            }
            Event::Object(change, object) => Some(self.writer.event(change.word(), &object, now)),
            Event::Initial(version) => {
                self.held.begun();
                self.announces
                    .then(|| self.writer.bookmark(version, true, now))
            }
        }
    }

    /// Whether something is written of these events.
    fn announces_any(&self, events: &[Event]) -> bool {
        let written = |event: &Event| matches!(event, Event::Object(..)) || self.announces;
        events.iter().any(written)
    }

    fn poll_bookmark(&mut self, context: &mut Context, version: Revision) -> Option<Bytes> {
        let ticks = self.bookmarks.as_mut()?;
        if ticks.poll_tick(context).is_pending() {
            return None;
        }
        if version <= self.last_version {
            return None;
        }
        self.last_version = version;
        Some(
            self.writer
                .bookmark(version, false, self.server.registry.now()),
        )
    }
}

/// What ends a watch besides its time.
fn ending(server: &Inner, resource: &Resource) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let mut stopping = server.stopping.subscribe();
    let definition = server
        .catalog
        .definition_of(resource)
        .filter(|_| resource.is_custom());
    Box::pin(async move {
        let stopped = stopping.wait_for(|stopping| *stopping);
        match definition.map(|definition| definition.ended()) {
            None => drop(stopped.await),
            Some(mut ended) => tokio::select! {
                _ = stopped => {}
                _ = ended.wait_for(|ended| *ended) => {}
            },
        }
    })
}

fn next(mut feed: Feed) -> Pending {
    Box::pin(async move {
        let events = feed.next().await;
        (feed, events)
    })
}

/// One buffer for everything that is ready.
fn join(mut frames: Vec<Bytes>) -> Option<Bytes> {
    match frames.len() {
        0 => None,
        1 => frames.pop(),
        _ => {
            let mut all = BytesMut::with_capacity(frames.iter().map(Bytes::len).sum());
            frames.iter().for_each(|frame| all.extend_from_slice(frame));
            Some(all.freeze())
        }
    }
}

impl Source for Stream {
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.pop_front() {
            return Poll::Ready(Some(first));
        }
        if self.events.len() > 0 && self.is_over() {
            return Poll::Ready(None);
        }
        if let Some(frames) = self.frames() {
            return Poll::Ready(Some(frames));
        }
        // Read before looking for events: whatever this revision covers is in the window by now.
        let seen = self.server.registry.store().revision();
        while let Some(pending) = &mut self.pending {
            let Poll::Ready((feed, outcome)) = pending.as_mut().poll(context) else {
                break;
            };
            match outcome {
                None => self.pending = None,
                // Kubernetes: an object that is no list has no such form, and the stream ends where it would be written.
                Some(Ok(events)) if self.writer.accept.listed && self.announces_any(&events) => {
                    self.pending = None;
                    return Poll::Ready(None);
                }
                Some(Ok(events)) => {
                    self.pending = Some(next(feed));
                    if self.is_over() {
                        return Poll::Ready(None);
                    }
                    self.gauge.sent(events.len());
                    self.events = events.into_iter();
                    if let Some(frames) = self.frames() {
                        return Poll::Ready(Some(frames));
                    }
                }
                Some(Err(status)) => {
                    self.pending = None;
                    let server = self.server.clone();
                    return Poll::Ready(Some(self.writer.error(&server.types.status, &status)));
                }
            }
        }
        // Waited for only when there is nothing to tell.
        let over = self.end.as_mut().poll(context).is_ready()
            || self.stopping.as_mut().poll(context).is_ready();
        if over || self.pending.is_none() {
            return Poll::Ready(None);
        }
        match self.poll_bookmark(context, seen) {
            Some(bookmark) => Poll::Ready(Some(bookmark)),
            None => Poll::Pending,
        }
    }
}

/// Writes events in the form that was asked for.
struct Writer {
    resource: Resource,
    accept: Accept,
    include: String,
    partial: Arc<Struct>,
    frames: Arc<Frames>,
    /// Columns are described in the first table only.
    headings: bool,
}

impl Writer {
    fn new(call: &Call<'_>) -> Writer {
        Writer {
            resource: call.resource.clone(),
            accept: call.accept,
            include: call.request.query.text("includeObject").into(),
            partial: call.server.types.partial.clone(),
            frames: call.server.frames.clone(),
            headings: true,
        }
    }

    fn event(&mut self, word: &'static str, object: &Object, now: i64) -> Bytes {
        if self.is_plain(object) {
            return self.frames.event(word, object);
        }
        let text = self.text(object, now);
        self.frame(word, object, text)
    }

    /// Whether an object is sent as it is stored.
    fn is_plain(&self, object: &Object) -> bool {
        matches!(
            (self.accept.form, self.accept.encoding),
            (Form::Whole, Encoding::Json)
        ) && object.forms(&self.resource).is_some()
    }

    fn text(&mut self, object: &Object, now: i64) -> Bytes {
        match self.accept.form {
            Form::Whole => object.json.clone(),
            Form::Metadata(version) => answer::partial(self.resource.kind(), object, version),
            Form::Table(version) => {
                let headings = std::mem::replace(&mut self.headings, false);
                let table = Table {
                    resource: &self.resource,
                    version,
                    include: &self.include,
                    now,
                    headings,
                };
                table.text(std::slice::from_ref(object), None)
            }
        }
    }

    fn frame(&self, word: &str, object: &Object, text: Bytes) -> Bytes {
        match (self.accept.encoding, self.accept.form) {
            (Encoding::Protobuf, Form::Whole) => {
                let message = answer::message(&self.resource, object);
                proto::watch_frame(word, &proto::envelope(&self.resource.kind().gvk, &message))
                    .into()
            }
            (Encoding::Protobuf, Form::Metadata(version)) => {
                let gvk = answer::meta_kind(version, "PartialObjectMetadata");
                let value = json::parse(&text).unwrap_or_default();
                let object = proto::encode_object(&gvk, &self.partial, &value);
                proto::watch_frame(word, &object).into()
            }
            _ => json_frame(word, &text),
        }
    }

    /// An object with nothing but a version: everything up to it has been told.
    fn bookmark(&mut self, version: Revision, initial: bool, now: i64) -> Bytes {
        let kind = self.resource.kind();
        let mut object = mizzen_value::value!({ "kind": (&kind.gvk.kind), "apiVersion": (kind.gvk.api_version()) });
        let metadata = object.entry("metadata");
        metadata.set("resourceVersion", version.to_string());
        if initial {
            metadata
                .entry("annotations")
                .set("k8s.io/initial-events-end", "true");
        }
        schema::canonical(&kind.root, &mut object);
        let object = Object::unstored(json::to_string(&object).into());
        self.event("BOOKMARK", &object, now)
    }

    fn error(&mut self, status_type: &Struct, status: &Status) -> Bytes {
        let value: Value = status.to_value();
        match self.accept.encoding {
            Encoding::Protobuf => {
                let gvk = answer::status_kind();
                proto::watch_frame("ERROR", &proto::encode_object(&gvk, status_type, &value)).into()
            }
            _ => json_frame("ERROR", json::to_string(&value).as_bytes()),
        }
    }
}
