//! One member of the cluster: its connections, and whether it answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tracing::{info, warn};

use super::connect::Dialer;
use super::error::CallError;
use crate::messages::{RangeRequest, RangeResponse};

/// The limit on what is sent, as upstream's client has it.
pub(super) const MAX_SEND: usize = 2 << 20;
/// There is none on what is received but that of the protocol.
const MAX_RECEIVE: usize = i32::MAX as usize;

/// How many watches share a connection. etcd before 3.4.20 and 3.5.5 accepts 250 streams on a connection with TLS and lets
/// the rest wait, calls among them; before 3.4.25 and 3.5.8 many reads starve the watches of their connection (its issue
/// 15402). So watches have connections of their own.
const MAX_WATCHES_PER_CONNECTION: usize = 100;

/// How long a member that failed is left alone, at first and at most.
const FIRST_PROBE: Duration = Duration::from_millis(100);
const LAST_PROBE: Duration = Duration::from_secs(5);

/// How long the answer to a probe may take. A member that takes longer hangs: no event of its watches is to be expected.
const HANG: Duration = Duration::from_secs(2);

/// A method of etcd's API.
#[derive(Clone, Copy)]
pub(super) struct Method {
    pub(super) path: &'static str,
    /// Whether it changes nothing, so that it may be called again.
    pub(super) is_read: bool,
    /// Whether a member without a leader is to reject it, and not to wait for one.
    pub(super) needs_leader: bool,
}

pub(super) const RANGE: Method = Method {
    path: "/etcdserverpb.KV/Range",
    is_read: true,
    needs_leader: true,
};

/// A member, and how it is reached.
pub(super) struct Member {
    pub(super) endpoint: String,
    dialer: Dialer,
    calls: Channel,
    watches: Mutex<Vec<WatchConnection>>,
    /// The last call failed, and none has succeeded since.
    is_suspect: AtomicBool,
    /// How many members of the cluster are not suspect.
    n_answering: Arc<AtomicUsize>,
    /// Notified when the member hangs while others answer.
    hangs: watch::Sender<()>,
}

struct WatchConnection {
    channel: Channel,
    /// Each watch holds a clone.
    slots: Arc<()>,
}

/// Counts as one watch of its connection.
pub(super) struct WatchSlot {
    _count: Arc<()>,
}

impl Member {
    /// A member of a cluster of which `n_answering` members are not suspect.
    pub(super) fn new(dialer: Dialer, n_answering: Arc<AtomicUsize>) -> Member {
        Member {
            endpoint: dialer.endpoint(),
            calls: dialer.channel(),
            dialer,
            watches: Mutex::default(),
            is_suspect: AtomicBool::new(false),
            n_answering,
            hangs: watch::Sender::default(),
        }
    }

    /// Notified when the member is found to hang while others answer.
    pub(super) fn subscribe_hangs(&self) -> watch::Receiver<()> {
        self.hangs.subscribe()
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    /// Calls this member.
    pub(super) async fn call<Q, R>(
        &self,
        method: Method,
        request: Q,
        deadline: Instant,
    ) -> Result<R, CallError>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = client(&self.calls);
        let mut request = match method.needs_leader {
            true => require_leader(request),
            false => Request::new(request),
        };
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        let response = timeout_at(deadline, async {
            grpc.ready().await.map_err(transport_status)?;
            let path = PathAndQuery::from_static(method.path);
            grpc.unary(request, path, ProstCodec::<Q, R>::default())
                .await
        });
        match response.await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.error(&status)),
            Err(_) => Err(CallError::deadline_exceeded(&self.endpoint)),
        }
    }

    /// The error of a call to this member.
    pub(super) fn error(&self, status: &Status) -> CallError {
        CallError::from_status(status, &self.endpoint, self.dialer.last_error())
    }

    /// A connection for one more watch.
    pub(super) fn watch_connection(&self) -> (Channel, WatchSlot) {
        let mut connections = self.watches.lock();
        let n_watches = |connection: &WatchConnection| Arc::strong_count(&connection.slots) - 1;
        let free = connections
            .iter()
            .position(|connection| n_watches(connection) < MAX_WATCHES_PER_CONNECTION);
        let index = free.unwrap_or_else(|| {
            connections.push(WatchConnection {
                channel: self.dialer.channel(),
                slots: Arc::default(),
            });
            connections.len() - 1
        });
        let slot = WatchSlot {
            _count: connections[index].slots.clone(),
        };
        let channel = connections[index].channel.clone();
        connections.retain(|connection| n_watches(connection) > 0);
        (channel, slot)
    }

    /// Takes note of an answer.
    pub(super) fn succeeded(&self) {
        if self.is_suspect() && self.is_suspect.swap(false, Ordering::Relaxed) {
            self.n_answering.fetch_add(1, Ordering::Relaxed);
            info!(endpoint = %self.endpoint, "etcd member answers again");
        }
    }

    /// Takes note of a failure: other members are preferred until this one answers a linearizable read. It is asked in the
    /// background, so that no call has to wait for its deadline to find out. If it hangs, its watches go on at others.
    pub(super) fn failed(self: &Arc<Member>, error: &CallError, probe_timeout: Duration) {
        if self.is_suspect.swap(true, Ordering::Relaxed) {
            return;
        }
        self.n_answering.fetch_sub(1, Ordering::Relaxed);
        warn!(endpoint = %self.endpoint, %error, "etcd member does not answer, preferring others");
        let member = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = FIRST_PROBE;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PROBE);
                let Some(member) = member.upgrade().filter(|member| member.is_suspect()) else {
                    return;
                };
                match member.probe(probe_timeout.min(HANG)).await {
                    Err(error) if error.is_about_the_member() => member.end_watches(&error),
                    _ => {
                        member.succeeded();
                        return;
                    }
                }
            }
        });
    }

    async fn probe(&self, limit: Duration) -> Result<RangeResponse, CallError> {
        let probe = RangeRequest {
            key: "health".into(),
            ..RangeRequest::default()
        };
        self.call(RANGE, probe, Instant::now() + limit).await
    }

    /// Ends the watches of a member that does not answer, unless there is no other to watch. A connection that broke ends
    /// its watches itself.
    fn end_watches(&self, error: &CallError) {
        if error.is_deadline_exceeded() && self.n_answering.load(Ordering::Relaxed) > 0 {
            self.hangs.send_replace(());
        }
    }
}

/// A client of a channel, with the limits of ours.
pub(super) fn client(channel: &Channel) -> Grpc<Channel> {
    Grpc::new(channel.clone())
        .max_decoding_message_size(MAX_RECEIVE)
        .max_encoding_message_size(MAX_SEND)
}

/// Has a member that knows no leader reject a request at once (etcd: `WithRequireLeader`), which proves that it was not
/// executed, and has it end a watch when it loses its leader.
pub(super) fn require_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    request
}

pub(super) fn transport_status(error: tonic::transport::Error) -> Status {
    Status::from_error(error.into())
}
