//! A watch: one stream of gRPC, which carries nothing else.
//!
//! etcd answers a request for progress once per stream, for all watches of it. With a watch per stream that answer is about
//! this watch: every event up to its revision has been returned.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::error::CallError;
use super::member::{Member, WatchSlot, client, require_leader, transport_status};
use crate::messages::{
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchRequestUnion, WatchResponse,
};

const PATH: &str = "/etcdserverpb.Watch/Watch";

/// The `watch_id` of a response that answers a request for progress. What etcd tells of progress unasked has that of the
/// watch.
pub const PROGRESS_ANSWER: i64 = -1;

/// The request that begins the watch, and requests for progress. One that waits will do for all that are made meanwhile.
const MAX_QUEUED_REQUESTS: usize = 2;

/// The changes of a range of keys, in order. Dropping it ends the watch.
pub struct Watch {
    responses: Streaming<WatchResponse>,
    requests: mpsc::Sender<WatchRequest>,
    /// The fragments of a response that have come so far.
    partial: Option<WatchResponse>,
    member: Arc<Member>,
    hangs: watch::Receiver<()>,
    probe_timeout: Duration,
    _slot: WatchSlot,
}

/// Asks for the progress of a watch, from any task.
#[derive(Clone)]
pub struct ProgressRequester(mpsc::Sender<WatchRequest>);

impl Watch {
    /// Begins a watch at one member, and waits until it has begun.
    pub(super) async fn begin(
        member: &Arc<Member>,
        create: WatchCreateRequest,
        deadline: Instant,
        probe_timeout: Duration,
    ) -> Result<Watch, CallError> {
        let (channel, slot) = member.watch_connection();
        let hangs = member.subscribe_hangs();
        let (requests, mut queue) = mpsc::channel(MAX_QUEUED_REQUESTS);
        requests
            .try_send(union(WatchRequestUnion::Create(create)))
            .expect("the queue is new");
        let outgoing = stream::poll_fn(move |context| queue.poll_recv(context));
        let begun = timeout_at(deadline, async {
            let mut grpc = client(&channel);
            grpc.ready().await.map_err(transport_status)?;
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            let path = PathAndQuery::from_static(PATH);
            let response = grpc
                .streaming(require_leader(outgoing), path, codec)
                .await?;
            let mut responses = response.into_inner();
            let first = responses.message().await?;
            Ok::<_, Status>((responses, first))
        });
        let (responses, first) = match begun.await {
            Ok(Ok(begun)) => begun,
            Ok(Err(status)) => return Err(member.error(&status)),
            Err(_) => return Err(CallError::deadline_exceeded(&member.endpoint)),
        };
        match first {
            None => return Err(ended(&member.endpoint)),
            Some(first) if first.canceled => return Err(canceled(&first)),
            Some(_) => {}
        }
        Ok(Watch {
            responses,
            requests,
            partial: None,
            member: member.clone(),
            hangs,
            probe_timeout,
            _slot: slot,
        })
    }

    /// The next response: events of whole revisions, or none if it tells progress. An error ends the watch; a new one can
    /// begin after the last revision that was returned, unless it [is compacted](CallError::is_compacted).
    ///
    /// Cancel safe: no response is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<WatchResponse, CallError> {
        loop {
            let message = tokio::select! {
                message = self.responses.message() => message,
                _ = self.hangs.changed() => return Err(silent(&self.member.endpoint)),
            };
            let response = match message {
                Ok(Some(response)) => response,
                Ok(None) => return Err(ended(&self.member.endpoint)),
                Err(status) => {
                    let error = self.member.error(&status);
                    if error.is_about_the_member() {
                        self.member.failed(&error, self.probe_timeout);
                    }
                    return Err(error);
                }
            };
            if response.canceled {
                return Err(canceled(&response));
            }
            let is_fragment = response.fragment;
            let mut whole = match self.partial.take() {
                None => response,
                Some(mut whole) => {
                    whole.header = response.header;
                    whole.events.extend(response.events);
                    whole
                }
            };
            whole.fragment = false;
            if !is_fragment {
                return Ok(whole);
            }
            self.partial = Some(whole);
        }
    }

    /// Gives up a watch that returns nothing although it should, so that the next one begins at another member. Returns
    /// why.
    pub fn give_up(self) -> CallError {
        let error = silent(&self.member.endpoint);
        self.member.failed(&error, self.probe_timeout);
        error
    }

    /// Asks etcd for a response with the revision up to which all events were sent. Its `watch_id` is
    /// [`PROGRESS_ANSWER`].
    pub fn request_progress(&self) {
        request_progress(&self.requests);
    }

    /// Asks for progress while another task waits for events.
    pub fn progress_requester(&self) -> ProgressRequester {
        ProgressRequester(self.requests.clone())
    }

    /// The member that is watched.
    pub fn endpoint(&self) -> &str {
        &self.member.endpoint
    }
}

impl ProgressRequester {
    /// As [`Watch::request_progress`]. Does nothing if the watch has ended.
    pub fn request_progress(&self) {
        request_progress(&self.0);
    }
}

fn request_progress(requests: &mpsc::Sender<WatchRequest>) {
    // A full queue has a request that was not sent yet; the end of the stream is what `next` returns.
    let _ = requests.try_send(union(WatchRequestUnion::Progress(WatchProgressRequest {})));
}

fn union(request: WatchRequestUnion) -> WatchRequest {
    WatchRequest {
        request: Some(request),
    }
}

fn ended(endpoint: &str) -> CallError {
    let message = format!("connection to {endpoint}: the stream of the watch has ended");
    CallError::unknown(Code::Unavailable, message)
}

fn silent(endpoint: &str) -> CallError {
    let message = format!("connection to {endpoint}: the member sends nothing to the watch");
    CallError::unknown(Code::Unavailable, message)
}

/// Why etcd has ended a watch, as its own client has it (client/v3/watch.go, `WatchResponse.Err`).
fn canceled(response: &WatchResponse) -> CallError {
    if response.compact_revision != 0 {
        CallError::compacted()
    } else if response.cancel_reason.is_empty() {
        CallError::future_revision()
    } else if response.cancel_reason == "etcdserver: no leader" {
        CallError::not_executed(Code::Unavailable, &response.cancel_reason)
    } else {
        CallError::not_executed(Code::FailedPrecondition, &response.cancel_reason)
    }
}
