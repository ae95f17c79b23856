//! Watch: the events of a collection, streamed.
//!
//! A watch pulls: it reads events only when its client has room for them. A client that does not read costs only a cursor,
//! and gets 410 when it has fallen too far behind.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mizzen_flowcontrol::HeldSeats;
use mizzen_object::schema::{self, Struct};
use mizzen_object::{Status, proto};
use mizzen_registry::{Object, Resource, ResourceWatch, Revision, WatchEvent, WatchOptions};
use mizzen_value::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::ResourceCall;
use super::frames::{END, WatchFrameCache, json_frame, start};
use crate::metrics::WatchGauge;
use crate::options::ListQuery;
use crate::request::Request;
use crate::response::{
    self, Accept, Body, FrameSource, Response, ResponseEncoding, ResponseForm, TableRenderer,
};
use crate::server::ServerParts;
use crate::websocket::{self, StreamMessages};

/// The interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn watch(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
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
    let timeout = watch_timeout(server, read.timeout);
    let encoder = WatchEncoder::new(call);

    let watch = match server.registry.watch(resource, options).await {
        // Kubernetes: an expired or future version is an ERROR event of the stream, not a status code.
        Err(status) if !matches!(status.code, 410 | 504) => return Err(status),
        watch => watch,
    };
    check_form(call)?;
    let stream = match watch {
        Ok(watch) => {
            let mut held = request.ticket.take_held();
            if watch.progress().is_some() {
                held.release_seats();
            }
            // Kubernetes: a watch without a version wants initial events (internalversion/defaults.go, `SetListOptionsDefaults`).
            let is_default = query.text("resourceVersionMatch").is_empty()
                && matches!(query.text("resourceVersion"), "" | "0");
            let announces = bookmarks && initial.unwrap_or(is_default);
            let feed = Feed::Store(Box::new(watch));
            let options = WatchBodyOptions {
                timeout,
                bookmarks,
                announces,
            };
            let mut stream = WatchBody::new(server, feed, encoder, options);
            stream.held = held;
            // Kubernetes: only if the client asks for initial events (handlers/watch.go).
            let scope = match (path.name.is_empty(), path.namespace.is_empty()) {
                (false, _) => "resource",
                (true, false) => "namespace",
                (true, true) => "cluster",
            };
            stream.watch_list =
                (announces && initial == Some(true)).then(|| (Instant::now(), scope));
            stream
        }
        Err(status) => WatchBody::failed(server, encoder, timeout, &status),
    };
    Ok(streamed(request, *accept, stream))
}

/// Checks that events can be sent in the negotiated form. Kubernetes: only when the first one is written
/// (handlers/response.go).
fn check_form(call: &ResourceCall) -> Result<(), Status> {
    call.check_include()?;
    match call.accept.encoding {
        ResponseEncoding::Yaml => Err(response::stream_not_acceptable()),
        _ => Ok(()),
    }
}

/// Streams the events of an [`extend::Storage`](crate::extend::Storage). There are no bookmarks, because it has no versions.
pub(super) fn stream_storage_events(
    call: &ResourceCall<'_>,
    events: Receiver<WatchEvent>,
) -> Result<Response, Status> {
    let ResourceCall {
        server,
        request,
        accept,
        ..
    } = call;
    check_form(call)?;
    let requested = request
        .query
        .int("timeoutSeconds")
        .map_err(Status::bad_request)?;
    let encoder = WatchEncoder::new(call);
    let options = WatchBodyOptions {
        timeout: watch_timeout(server, requested),
        bookmarks: false,
        announces: false,
    };
    let mut stream = WatchBody::new(server, Feed::Own(events), encoder, options);
    stream.held = request.ticket.take_held();
    // Initial events cannot be distinguished from later ones.
    stream.held.release_seats();
    Ok(streamed(request, *accept, stream))
}

/// The timeout of a watch: the client's, or a random one between once and twice `--min-request-timeout`.
fn watch_timeout(server: &ServerParts, requested: Option<i64>) -> Duration {
    let seconds = requested
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

/// The response with a watch, or the WebSocket that the client asks for.
fn streamed(request: &Request, accept: Accept, stream: WatchBody) -> Response {
    let response = response::with_body(200, stream_type(accept), Body::stream(stream));
    let messages = match accept.encoding {
        ResponseEncoding::Protobuf => StreamMessages::LengthPrefixed,
        _ => StreamMessages::Lines,
    };
    websocket::upgraded(request, response, messages)
}

fn stream_type(accept: Accept) -> &'static str {
    match accept.encoding {
        ResponseEncoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        _ => "application/json",
    }
}

/// The next events, which a stream waits for.
type Pending =
    Pin<Box<dyn Future<Output = (Feed, Option<Result<Vec<WatchEvent>, Status>>)> + Send>>;

/// The source of events.
enum Feed {
    /// The store.
    Store(Box<ResourceWatch>),
    /// An extension's storage.
    Own(Receiver<WatchEvent>),
}

impl Feed {
    /// The next events; `None` at the end.
    async fn next(&mut self) -> Option<Result<Vec<WatchEvent>, Status>> {
        match self {
            Feed::Store(watch) => Some(watch.next().await),
            Feed::Own(events) => events.recv().await.map(|event| Ok(vec![event])),
        }
    }
}

/// How much is joined before it is sent. There are many watches, so unread chunks must be small.
const CHUNK: usize = 32 * 1024;

/// A watch as the body of a response.
struct WatchBody {
    server: Arc<ServerParts>,
    pending: Option<Pending>,
    /// Events that have not been encoded. Their objects are shared between watches.
    events: std::vec::IntoIter<WatchEvent>,
    encoder: WatchEncoder,
    end: Pin<Box<Sleep>>,
    bookmarks: Option<Interval>,
    /// Whether the end of the initial events is a bookmark.
    announces: bool,
    /// Resolves when the server stops, or the definition of a custom kind changes.
    stopping: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Frames to send before anything else.
    first: VecDeque<Bytes>,
    last_version: Revision,
    gauge: WatchGauge,
    /// The seat of the request, until the initial events have been sent.
    held: HeldSeats,
    /// When a watch list began, and its scope.
    watch_list: Option<(Instant, &'static str)>,
}

struct WatchBodyOptions {
    timeout: Duration,
    bookmarks: bool,
    /// Whether the end of the initial events is a bookmark.
    announces: bool,
}

impl WatchBody {
    fn new(
        server: &Arc<ServerParts>,
        feed: Feed,
        encoder: WatchEncoder,
        options: WatchBodyOptions,
    ) -> WatchBody {
        let bookmarks = options.bookmarks.then(|| {
            let mut ticks = interval_at(Instant::now() + BOOKMARK_INTERVAL, BOOKMARK_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let ending = ending(server, &encoder.resource);
        let gauge = server.metrics.watching(encoder.resource.kind());
        WatchBody {
            server: server.clone(),
            pending: Some(next(feed)),
            events: Vec::new().into_iter(),
            encoder,
            end: Box::pin(sleep(options.timeout)),
            bookmarks,
            announces: options.announces,
            stopping: ending,
            first: VecDeque::new(),
            last_version: Revision::ZERO,
            gauge,
            held: HeldSeats::default(),
            watch_list: None,
        }
    }

    /// A stream of one ERROR event.
    fn failed(
        server: &Arc<ServerParts>,
        mut encoder: WatchEncoder,
        timeout: Duration,
        status: &Status,
    ) -> WatchBody {
        let first = VecDeque::from([encoder.error(&server.types.status, status)]);
        WatchBody {
            server: server.clone(),
            pending: None,
            events: Vec::new().into_iter(),
            end: Box::pin(sleep(timeout)),
            bookmarks: None,
            announces: false,
            stopping: Box::pin(std::future::pending()),
            first,
            last_version: Revision::ZERO,
            gauge: server.metrics.watching(encoder.resource.kind()),
            held: HeldSeats::default(),
            watch_list: None,
            encoder,
        }
    }

    /// Whether the timeout has passed or the server is stopping, without waiting.
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
        match frames.len() {
            0 => None,
            1 => frames.pop(),
            _ => {
                let mut all = BytesMut::with_capacity(length);
                frames.iter().for_each(|frame| all.extend_from_slice(frame));
                Some(all.freeze())
            }
        }
    }

    /// The frame of an event. A large object is not copied: it follows in a frame of its own.
    fn frame(&mut self, event: WatchEvent) -> Option<Bytes> {
        let now = self.server.registry.now();
        match event {
            WatchEvent::Object(change, object)
                if object.json.len() >= CHUNK && self.encoder.is_plain(&object) =>
            {
                self.first
                    .extend([object.json.clone(), Bytes::from_static(END)]);
                Some(start(change.word(), 0).into())
            }
            WatchEvent::Object(change, object) => {
                Some(self.encoder.event(change.word(), &object, now))
            }
            WatchEvent::Initial(version) => {
                self.held.release_seats();
                if let Some((began, scope)) = self.watch_list.take() {
                    let kind = self.encoder.resource.kind();
                    let metrics = &self.server.metrics;
                    metrics.observe_watch_list(kind, scope, began.elapsed());
                }
                self.announces
                    .then(|| self.encoder.bookmark(version, true, now))
            }
        }
    }

    /// Whether any of these events is sent.
    fn sends_any(&self, events: &[WatchEvent]) -> bool {
        let written =
            |event: &WatchEvent| matches!(event, WatchEvent::Object(..)) || self.announces;
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
            self.encoder
                .bookmark(version, false, self.server.registry.now()),
        )
    }
}

/// Resolves when a watch ends before its timeout.
fn ending(server: &ServerParts, resource: &Resource) -> Pin<Box<dyn Future<Output = ()> + Send>> {
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

impl FrameSource for WatchBody {
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
        // Read before the events: everything up to this revision is in the watch window by now.
        let seen = self.encoder.resource.space().revision();
        while let Some(pending) = &mut self.pending {
            let Poll::Ready((feed, outcome)) = pending.as_mut().poll(context) else {
                break;
            };
            match outcome {
                None => self.pending = None,
                // Kubernetes: an object has no PartialObjectMetadataList, and the stream ends where one would be written.
                Some(Ok(events)) if self.encoder.accept.listed && self.sends_any(&events) => {
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
                    return Poll::Ready(Some(self.encoder.error(&server.types.status, &status)));
                }
            }
        }
        // Polled only when there are no events.
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

/// Encodes events in the negotiated form.
struct WatchEncoder {
    resource: Resource,
    accept: Accept,
    include: String,
    partial: Arc<Struct>,
    frames: Arc<WatchFrameCache>,
    /// Columns are described in the first table only.
    headings: bool,
}

impl WatchEncoder {
    fn new(call: &ResourceCall<'_>) -> WatchEncoder {
        WatchEncoder {
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
            (ResponseForm::Whole, ResponseEncoding::Json)
        ) && object.forms(&self.resource).is_some()
    }

    fn text(&mut self, object: &Object, now: i64) -> Bytes {
        match self.accept.form {
            ResponseForm::Whole => object.json.clone(),
            ResponseForm::Metadata(version) => {
                response::partial(self.resource.kind(), object, version)
            }
            ResponseForm::Table(version) => {
                let headings = std::mem::replace(&mut self.headings, false);
                let table = TableRenderer {
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
            (ResponseEncoding::Protobuf, ResponseForm::Whole) => {
                let message = response::message(&self.resource, object);
                proto::watch_frame(word, &proto::envelope(&self.resource.kind().gvk, &message))
                    .into()
            }
            (ResponseEncoding::Protobuf, ResponseForm::Metadata(version)) => {
                let gvk = response::meta_kind(version, "PartialObjectMetadata");
                let value = json::parse(&text).unwrap_or_default();
                let object = proto::encode_object(&gvk, &self.partial, &value);
                proto::watch_frame(word, &object).into()
            }
            _ => json_frame(word, &text),
        }
    }

    /// A BOOKMARK event: all events up to its version have been sent.
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
            ResponseEncoding::Protobuf => {
                let gvk = response::status_kind();
                proto::watch_frame("ERROR", &proto::encode_object(&gvk, status_type, &value)).into()
            }
            _ => json_frame("ERROR", json::to_string(&value).as_bytes()),
        }
    }
}
