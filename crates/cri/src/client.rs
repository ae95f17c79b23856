//! The client: one connection over a Unix socket, which all calls share.
//!
//! A request knows its method, its response and its deadline ([`CriRequest`]), so that there is one function for all
//! calls. The connection is made by the first call, and made again after it was lost.
//!
//! Invariant: every call has a deadline, but the stream of events, and a command that has no time limit of its own.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::held::HeldConnection;
use crate::messages::*;

/// The default endpoint: that of containerd.
pub const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// Kubernetes: `runtimeRequestTimeout` of the kubelet.
const REQUEST: Duration = Duration::from_secs(120);
/// The deadline of calls that do no work.
const QUICK: Duration = Duration::from_secs(10);
/// The deadline of a pull, which depends on the network.
const PULL: Duration = Duration::from_secs(1800);
/// Kubernetes: the largest message (cri-client, `maxMsgSize`).
const MAX_MESSAGE: usize = 16 << 20;

/// The version of the interface.
const API_VERSION: &str = "v1";

/// A request of the interface.
pub trait CriRequest: Message + Clone + 'static {
    /// The method, as a path.
    const METHOD: &'static str;
    /// The response.
    type Response: Message + Default + 'static;

    /// How long the call may take; `None` if it may take any time.
    fn deadline(&self) -> Option<Duration> {
        Some(REQUEST)
    }
}

/// Declares the method, the response and the deadline of requests.
macro_rules! calls {
    ($($service:literal $method:literal $request:ty => $response:ty $(, $self:ident in $deadline:expr)?;)*) => {$(
        impl CriRequest for $request {
            const METHOD: &'static str = concat!("/runtime.v1.", $service, "/", $method);
            type Response = $response;

            $(fn deadline(&$self) -> Option<Duration> {
                $deadline.into()
            })?
        }
    )*};
}

calls! {
    "RuntimeService" "Version" VersionRequest => VersionResponse, self in QUICK;
    "RuntimeService" "Status" StatusRequest => StatusResponse, self in QUICK;
    "RuntimeService" "UpdateRuntimeConfig" UpdateRuntimeConfigRequest => Empty;
    "RuntimeService" "RunPodSandbox" RunPodSandboxRequest => RunPodSandboxResponse, self in REQUEST * 2;
    "RuntimeService" "StopPodSandbox" StopPodSandboxRequest => Empty;
    "RuntimeService" "RemovePodSandbox" RemovePodSandboxRequest => Empty;
    "RuntimeService" "PodSandboxStatus" PodSandboxStatusRequest => PodSandboxStatusResponse;
    "RuntimeService" "ListPodSandbox" ListPodSandboxRequest => ListPodSandboxResponse;
    "RuntimeService" "CreateContainer" CreateContainerRequest => CreateContainerResponse;
    "RuntimeService" "StartContainer" StartContainerRequest => Empty;
    "RuntimeService" "StopContainer" StopContainerRequest => Empty, self in REQUEST + seconds(self.timeout);
    "RuntimeService" "RemoveContainer" RemoveContainerRequest => Empty;
    "RuntimeService" "ListContainers" ListContainersRequest => ListContainersResponse;
    "RuntimeService" "ContainerStatus" ContainerStatusRequest => ContainerStatusResponse;
    "RuntimeService" "ReopenContainerLog" ReopenContainerLogRequest => Empty;
    "RuntimeService" "ExecSync" ExecSyncRequest => ExecSyncResponse, self in exec_deadline(self.timeout);
    "RuntimeService" "Exec" ExecRequest => StreamingResponse;
    "RuntimeService" "Attach" AttachRequest => StreamingResponse;
    "RuntimeService" "PortForward" PortForwardRequest => StreamingResponse;
    "RuntimeService" "RuntimeConfig" RuntimeConfigRequest => RuntimeConfigResponse, self in QUICK;
    "RuntimeService" "UpdateContainerResources" UpdateContainerResourcesRequest => Empty;
    "RuntimeService" "ListContainerStats" ListContainerStatsRequest => ListContainerStatsResponse;
    "ImageService" "ListImages" ListImagesRequest => ListImagesResponse;
    "ImageService" "ImageStatus" ImageStatusRequest => ImageStatusResponse;
    "ImageService" "PullImage" PullImageRequest => PullImageResponse, self in PULL;
    "ImageService" "RemoveImage" RemoveImageRequest => Empty;
    "ImageService" "ImageFsInfo" ImageFsInfoRequest => ImageFsInfoResponse;
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or_default())
}

/// Kubernetes: a command without a time limit may take any time (cri-client, remote_runtime.go, `ExecSync`).
fn exec_deadline(timeout: i64) -> Option<Duration> {
    (timeout > 0).then(|| REQUEST + seconds(timeout))
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It is not the address of a Unix socket.
    #[error("{0:?} is not an endpoint such as {DEFAULT_ENDPOINT:?}")]
    Endpoint(String),
    /// There is no socket.
    #[error(
        "no container runtime at {endpoint}: the socket does not exist. Install and start one (on Debian: apt install \
         containerd runc containernetworking-plugins), or name the socket of another"
    )]
    Missing {
        /// The endpoint.
        endpoint: String,
    },
    /// The socket cannot be opened.
    #[error("cannot connect to the container runtime at {endpoint}: {source}")]
    Socket {
        /// The endpoint.
        endpoint: String,
        /// Why.
        source: io::Error,
    },
    /// It does not serve version 1 of the interface.
    #[error(
        "the container runtime at {endpoint} does not serve CRI v1. containerd 1.6, CRI-O 1.20 and later ones do, unless \
         their configuration disables the plug-in \"cri\""
    )]
    TooOld {
        /// The endpoint.
        endpoint: String,
    },
    /// The runtime returned an error.
    #[error("the container runtime at {endpoint} fails: {source}")]
    Call {
        /// The endpoint.
        endpoint: String,
        /// The error.
        source: CallError,
    },
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("rpc error: code = {code:?} desc = {message}")]
pub struct CallError {
    /// The code of gRPC.
    pub code: Code,
    /// The message.
    pub message: String,
}

impl CallError {
    /// Whether the object of the call does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }

    /// Whether the runtime was not reached: whether the call had an effect is not known.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::DeadlineExceeded)
    }

    pub(crate) fn from_status(status: &Status) -> CallError {
        // tonic reports a lost connection as an unknown error, "transport error".
        let transport = std::error::Error::source(status)
            .and_then(|source| source.downcast_ref::<tonic::transport::Error>());
        match transport {
            Some(error) => CallError::unavailable(error),
            None => CallError {
                code: status.code(),
                message: status.message().to_owned(),
            },
        }
    }

    fn unavailable(error: &tonic::transport::Error) -> CallError {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        CallError {
            code: Code::Unavailable,
            message,
        }
    }
}

/// A container runtime.
#[derive(Debug, Clone)]
pub struct CriClient {
    endpoint: String,
    channel: Channel,
    version: VersionResponse,
}

impl CriClient {
    /// Connects to `unix:///path/of/a.sock` and checks the version.
    pub async fn connect(endpoint: &str) -> Result<CriClient, ConnectError> {
        let path = socket_path(endpoint)?;
        let endpoint = format!("unix://{}", path.display());
        match UnixStream::connect(&path).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ConnectError::Missing { endpoint });
            }
            Err(source) => return Err(ConnectError::Socket { endpoint, source }),
        }
        let channel = Endpoint::from_shared(endpoint.clone())
            .map_err(|_| ConnectError::Endpoint(endpoint.clone()))?
            .connect_lazy();
        let mut client = CriClient {
            endpoint,
            channel,
            version: VersionResponse::default(),
        };
        client.version = client.check_version().await?;
        Ok(client)
    }

    async fn check_version(&self) -> Result<VersionResponse, ConnectError> {
        let endpoint = self.endpoint.clone();
        let request = VersionRequest {
            version: API_VERSION.into(),
        };
        match self.call(request).await {
            Ok(version) if version.runtime_api_version == API_VERSION => Ok(version),
            Ok(_) => Err(ConnectError::TooOld { endpoint }),
            Err(error) if error.code == Code::Unimplemented => {
                Err(ConnectError::TooOld { endpoint })
            }
            Err(source) => Err(ConnectError::Call { endpoint, source }),
        }
    }

    /// Where the runtime is.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The name and the version of the runtime when it was connected.
    pub fn version(&self) -> &VersionResponse {
        &self.version
    }

    /// Calls the method of a request.
    pub async fn call<R: CriRequest>(&self, request: R) -> Result<R::Response, CallError> {
        let deadline = request.deadline();
        self.unary(R::METHOD, Request::new(request), deadline).await
    }

    /// Calls the method of a request so that the runtime finishes the call even if this process is killed meanwhile.
    pub async fn call_to_the_end<R: CriRequest>(
        &self,
        request: R,
    ) -> Result<R::Response, CallError> {
        let path = self.endpoint.trim_start_matches("unix://");
        let held = HeldConnection::open(path.as_ref()).await;
        let held = held.map_err(|error| CallError {
            code: Code::Unavailable,
            message: error.to_string(),
        })?;
        let client = CriClient {
            channel: held.channel.clone(),
            ..self.clone()
        };
        let response = client.call(request).await;
        held.close();
        response
    }

    /// Calls a method with one request and one response.
    pub(crate) async fn unary<Q, A>(
        &self,
        method: &'static str,
        mut request: Request<Q>,
        deadline: impl Into<Option<Duration>>,
    ) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc();
        let deadline = deadline.into();
        let call = async {
            ready(&mut grpc).await?;
            if let Some(deadline) = deadline {
                request.set_timeout(deadline);
            }
            let path = PathAndQuery::from_static(method);
            grpc.unary(request, path, ProstCodec::<Q, A>::default())
                .await
                .map(tonic::Response::into_inner)
                .map_err(|status| CallError::from_status(&status))
        };
        let Some(deadline) = deadline else {
            return call.await;
        };
        timeout(deadline, call).await.unwrap_or_else(|_| {
            Err(CallError {
                code: Code::DeadlineExceeded,
                message: format!("no response within {} s", deadline.as_secs()),
            })
        })
    }

    /// Watches containers. Runtimes before containerd 1.7 and CRI-O 1.26 do not implement it, which the first
    /// [`ContainerEvents::next`] says.
    pub fn events(&self) -> ContainerEvents {
        ContainerEvents {
            client: self.clone(),
            stream: None,
        }
    }

    async fn stream_events(&self) -> Result<Streaming<ContainerEventResponse>, CallError> {
        let mut grpc = self.grpc();
        ready(&mut grpc).await?;
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let codec = ProstCodec::<GetEventsRequest, ContainerEventResponse>::default();
        grpc.server_streaming(Request::new(GetEventsRequest {}), path, codec)
            .await
            .map(tonic::Response::into_inner)
            .map_err(|status| CallError::from_status(&status))
    }

    pub(crate) fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

pub(crate) async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), CallError> {
    grpc.ready()
        .await
        .map_err(|error| CallError::unavailable(&error))
}

/// Changes of containers, as they happen.
pub struct ContainerEvents {
    client: CriClient,
    stream: Option<Streaming<ContainerEventResponse>>,
}

impl ContainerEvents {
    /// The next change; `None` when the runtime ends the stream. Runtimes may respond to the call with the first change
    /// only, so there is no deadline.
    pub async fn next(&mut self) -> Result<Option<ContainerEventResponse>, CallError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.client.stream_events().await?),
        };
        let next = stream.message().await;
        next.map_err(|status| CallError::from_status(&status))
    }
}

/// The path of `unix:///path` or `/path`.
fn socket_path(endpoint: &str) -> Result<PathBuf, ConnectError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(ConnectError::Endpoint(endpoint.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(endpoint: &str, expected: Option<&str>) {
        let path = socket_path(endpoint).ok();
        assert_eq!(
            path.as_deref().and_then(|path| path.to_str()),
            expected,
            "{endpoint}"
        );
    }

    #[test]
    fn an_endpoint_is_a_unix_socket() {
        check("unix:///run/a.sock", Some("/run/a.sock"));
        check("/run/a.sock", Some("/run/a.sock"));
        check("run/a.sock", None);
        check("tcp://localhost:1", None);
        check("", None);
    }

    #[test]
    fn a_deadline_includes_the_time_that_the_request_grants() {
        let stop = |timeout| StopContainerRequest {
            container_id: "a".into(),
            timeout,
        };
        let more = Duration::from_secs(30);
        assert_eq!(stop(30).deadline(), Some(REQUEST + more));
        assert_eq!(stop(-1).deadline(), Some(REQUEST));
        assert_eq!(StartContainerRequest::default().deadline(), Some(REQUEST));
        let exec = |timeout| ExecSyncRequest {
            timeout,
            ..ExecSyncRequest::default()
        };
        assert_eq!(exec(30).deadline(), Some(REQUEST + more));
        assert_eq!(exec(0).deadline(), None, "a hook takes its time");
    }
}
