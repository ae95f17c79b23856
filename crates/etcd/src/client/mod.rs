//! Calls etcd over gRPC: several endpoints, TLS, deadlines, and a clear answer to whether a failed write may have happened.
//!
//! A [`Client`] has one `Member` per endpoint. A call goes to the next member of those that answer. If that member cannot
//! be reached or has no leader, the call goes to another as long as nothing can be executed twice: a read always, a write
//! only if the error proves that it was not executed ([`Outcome::NotExecuted`]). A member that failed is asked in the
//! background until it answers a linearizable read, and the others are preferred meanwhile.
//!
//! Invariant: every call ends by its deadline.
//! Invariant: a write is sent again only if the last attempt was not executed.

mod connect;
mod error;
mod features;
mod member;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_value::clock::Clock;
use prost::Message;
use tokio::time::{Instant, sleep_until};
pub use tonic::Code;
use tracing::debug;

use crate::messages::{
    CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, RequestOp, Response,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest,
};
use connect::Dialer;
pub use error::{CallError, Outcome};
pub use features::Features;
use member::{MAX_SEND, Member, Method, RANGE};
pub use watch::{PROGRESS_ANSWER, ProgressRequester, Watch};

const TXN: Method = write("/etcdserverpb.KV/Txn");
/// A transaction without writes.
const READ_TXN: Method = Method {
    is_read: true,
    ..TXN
};
const COMPACT: Method = write("/etcdserverpb.KV/Compact");
const LEASE_GRANT: Method = write("/etcdserverpb.Lease/LeaseGrant");
const LEASE_REVOKE: Method = write("/etcdserverpb.Lease/LeaseRevoke");
const STATUS: Method = Method {
    path: "/etcdserverpb.Maintenance/Status",
    is_read: true,
    needs_leader: false,
};

const fn write(path: &'static str) -> Method {
    Method {
        path,
        is_read: false,
        needs_leader: true,
    }
}

/// How often all members are tried. With the pauses between that is three seconds, in which a leader is elected.
const MAX_ROUNDS: u32 = 9;
/// The first pause, as in etcd's own client. It doubles with each round.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LAST_PAUSE: Duration = Duration::from_millis(800);

/// Where etcd is, and how it is called.
#[derive(Clone)]
pub struct Config {
    /// The members: `http://host:port`, `https://host:port`, or `host:port`, which has TLS if one of the files is set.
    pub endpoints: Vec<String>,
    /// PEM of the authorities that may have signed the members' certificates; those of the machine if there is none.
    pub ca_file: Option<PathBuf>,
    /// PEM of the client certificate. The files are read again for each connection.
    pub cert_file: Option<PathBuf>,
    /// PEM of its key.
    pub key_file: Option<PathBuf>,
    /// The limit on connecting, with the TLS handshake. Kubernetes: 20 s.
    pub dial_timeout: Duration,
    /// The limit on a call, with all its attempts.
    pub call_timeout: Duration,
    /// After how much silence a connection with calls or watches is probed. Kubernetes: 30 s. etcd closes connections that
    /// are probed more often than every 5 s.
    pub keepalive_time: Duration,
    /// How long the answer to a probe may take until the connection is closed. Kubernetes: 10 s.
    pub keepalive_timeout: Duration,
    /// The time at which certificates must be good.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// The limits of upstream's API server, without TLS files, and ten seconds for a call.
    pub fn new(endpoints: Vec<String>, clock: Arc<dyn Clock>) -> Config {
        Config {
            endpoints,
            ca_file: None,
            cert_file: None,
            key_file: None,
            dial_timeout: Duration::from_secs(20),
            call_timeout: Duration::from_secs(10),
            keepalive_time: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            clock,
        }
    }
}

/// What is wrong with a [`Config`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no endpoint.
    #[error("no etcd endpoint is given")]
    NoEndpoints,
    /// An endpoint is neither a URL nor an address.
    #[error("etcd endpoint {0:?} is not http://host:port, https://host:port or host:port")]
    Endpoint(String),
    /// One of certificate and key is missing.
    #[error("the client certificate and its key for etcd must be given together")]
    Identity,
}

/// A client of an etcd cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
    call_timeout: Duration,
}

struct Cluster {
    members: Vec<Arc<Member>>,
    /// Whose turn it is.
    turn: AtomicUsize,
}

/// What one endpoint says of itself.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// The endpoint.
    pub endpoint: String,
    /// Its answer.
    pub status: Result<StatusResponse, CallError>,
}

impl Client {
    /// A client that connects when it is first called. Must be called within a tokio runtime.
    pub fn connect(config: Config) -> Result<Client, ConfigError> {
        if config.endpoints.is_empty() {
            return Err(ConfigError::NoEndpoints);
        }
        if config.cert_file.is_some() != config.key_file.is_some() {
            return Err(ConfigError::Identity);
        }
        let dialers = config
            .endpoints
            .iter()
            .map(|endpoint| Dialer::new(endpoint, &config));
        let dialers = dialers.collect::<Result<Vec<_>, _>>()?;
        let n_answering = Arc::new(AtomicUsize::new(dialers.len()));
        let members = dialers
            .into_iter()
            .map(|dialer| Arc::new(Member::new(dialer, n_answering.clone())))
            .collect();
        Ok(Client {
            cluster: Arc::new(Cluster {
                members,
                turn: AtomicUsize::new(0),
            }),
            call_timeout: config.call_timeout,
        })
    }

    /// The same connections, with another limit on calls.
    #[must_use]
    pub fn with_call_timeout(&self, call_timeout: Duration) -> Client {
        Client {
            cluster: self.cluster.clone(),
            call_timeout,
        }
    }

    /// The limit on a call, with all its attempts.
    pub fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// The endpoints, as URLs.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        let members = self.cluster.members.iter();
        members.map(|member| member.endpoint.as_str())
    }

    /// Reads keys.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        let method = Method {
            needs_leader: !request.serializable,
            ..RANGE
        };
        self.call(method, request).await
    }

    /// Reads several ranges at once.
    pub async fn ranges(
        &self,
        requests: Vec<RangeRequest>,
    ) -> Result<Vec<RangeResponse>, CallError> {
        let txn = TxnRequest {
            success: requests.into_iter().map(RequestOp::range).collect(),
            ..TxnRequest::default()
        };
        let response: TxnResponse = self.call(READ_TXN, txn).await?;
        let ranges = response.responses.into_iter().map(|op| match op.response {
            Some(Response::Range(range)) => range,
            _ => RangeResponse::default(),
        });
        Ok(ranges.collect())
    }

    /// Executes a transaction.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call(TXN, request).await
    }

    /// Compacts history before a revision.
    pub async fn compact(
        &self,
        request: CompactionRequest,
    ) -> Result<CompactionResponse, CallError> {
        self.call(COMPACT, request).await
    }

    /// Makes a lease.
    pub async fn lease_grant(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, CallError> {
        self.call(LEASE_GRANT, request).await
    }

    /// Ends a lease and deletes its keys.
    pub async fn lease_revoke(
        &self,
        request: LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, CallError> {
        self.call(LEASE_REVOKE, request).await
    }

    /// Asks every endpoint about itself, all at once.
    pub async fn status(&self) -> Vec<MemberStatus> {
        let deadline = Instant::now() + self.call_timeout;
        let ask = |member: &Arc<Member>| {
            let member = member.clone();
            async move {
                MemberStatus {
                    status: member.call(STATUS, StatusRequest {}, deadline).await,
                    endpoint: member.endpoint.clone(),
                }
            }
        };
        join_all(self.cluster.members.iter().map(ask)).await
    }

    /// What the cluster can do, by the versions of its members.
    pub async fn features(&self) -> Features {
        Features::from_status(&self.status().await)
    }

    /// Whether the cluster answers a linearizable read below `prefix` within `limit`.
    ///
    /// Kubernetes: the health check of its storage (apiserver/pkg/storage/storagebackend/factory/etcd3.go), whose limit is
    /// 2 s.
    pub async fn health(&self, prefix: &str, limit: Duration) -> Result<(), CallError> {
        let key = format!("/{}/health", prefix.trim_matches('/')).replace("//", "/");
        let request = RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        };
        let answer = self.with_call_timeout(limit).range(request).await;
        answer.map(drop).map_err(|error| CallError {
            message: format!("error getting data from etcd: {}", error.message),
            ..error
        })
    }

    /// Begins a watch on one member, and waits until it has begun.
    pub async fn watch(&self, request: WatchCreateRequest) -> Result<Watch, CallError> {
        let probe_timeout = self.call_timeout;
        self.attempt(true, |member, deadline| {
            let request = request.clone();
            async move { Watch::begin(&member, request, deadline, probe_timeout).await }
        })
        .await
    }

    async fn call<Q, R>(&self, method: Method, request: Q) -> Result<R, CallError>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let length = request.encoded_len();
        if length > MAX_SEND {
            return Err(CallError::larger_than_max(length, MAX_SEND));
        }
        self.attempt(method.is_read, |member, deadline| {
            let request = request.clone();
            async move { member.call(method, request, deadline).await }
        })
        .await
    }

    /// Tries one member after the other.
    async fn attempt<R, F>(
        &self,
        is_read: bool,
        mut call: impl FnMut(Arc<Member>, Instant) -> F,
    ) -> Result<R, CallError>
    where
        F: Future<Output = Result<R, CallError>>,
    {
        let deadline = Instant::now() + self.call_timeout;
        let n_members = self.cluster.members.len() as u32;
        let mut pause = FIRST_PAUSE;
        let mut last = None;
        for attempt in 1.. {
            let index = self.cluster.choose(last);
            let member = &self.cluster.members[index];
            let error = match call(member.clone(), deadline).await {
                Ok(response) => {
                    member.succeeded();
                    return Ok(response);
                }
                Err(error) => error,
            };
            if error.is_about_the_member() {
                member.failed(&error, self.call_timeout);
            } else {
                member.succeeded();
            }
            let is_safe = is_read || error.outcome == Outcome::NotExecuted;
            if !error.is_unavailable() || !is_safe || attempt == MAX_ROUNDS * n_members {
                return Err(error);
            }
            if attempt % n_members == 0 {
                if Instant::now() + pause >= deadline {
                    return Err(error);
                }
                sleep_until(Instant::now() + pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
            debug!(endpoint = %member.endpoint, is_read, %error, "calling another etcd member");
            last = Some(index);
        }
        unreachable!("the number of attempts is limited")
    }
}

impl Cluster {
    /// The next member that answers and did not just fail; if there is none, the next that did not just fail.
    fn choose(&self, failed: Option<usize>) -> usize {
        let n_members = self.members.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % n_members;
        let mut others = (0..n_members)
            .map(|step| (first + step) % n_members)
            .filter(|index| Some(*index) != failed);
        let answering = others
            .clone()
            .find(|index| !self.members[*index].is_suspect());
        answering.or_else(|| others.next()).unwrap_or(first)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<_> = self.endpoints().collect();
        formatter
            .debug_struct("Client")
            .field("endpoints", &endpoints)
            .finish_non_exhaustive()
    }
}
