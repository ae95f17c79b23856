//! Probes and HTTP hooks, from the node (upstream: pkg/probe). Commands run in the container.
//!
//! A probe is a task. Its result waits for the agent, which asks for it by the moment at which the
//! probe was due.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use mizzen_cri::Code;
use mizzen_cri::messages::ExecSyncRequest;
use mizzen_value::Value;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic_prost::ProstCodec;

use super::CriNode;
use super::container::ContainerCell;
use crate::moment::{Moment, seconds};
use crate::pod::spec::field;
use crate::runtime::{ContainerConfig, ProbeResult, ProbeType};

/// Kubernetes: the most of an output that is kept (pkg/probe).
const MAX_OUTPUT: usize = 10 << 10;
/// Kubernetes: the timeout of an HTTP hook (pkg/kubelet/lifecycle/handlers.go).
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);

/// The probes of one instance: startup, readiness, liveness.
#[derive(Default)]
pub(super) struct ProbeRuns([Mutex<Option<ProbeRun>>; 3]);

/// A probe that runs or has run.
struct ProbeRun {
    due: Moment,
    result: Option<ProbeResult>,
}

impl ProbeRuns {
    fn of(&self, probe: ProbeType) -> &Mutex<Option<ProbeRun>> {
        &self.0[probe as usize]
    }
}

/// What a probe needs of its pod.
struct ProbeTarget {
    id: String,
    address: String,
    container: Value,
    probe: Value,
}

impl CriNode {
    /// The result of the probe that is due at a moment; `None` while it runs.
    pub(super) fn probe(
        self: Arc<Self>,
        cell: &Arc<ContainerCell>,
        probe: ProbeType,
        config: &ContainerConfig,
        due: Moment,
    ) -> Option<ProbeResult> {
        {
            let mut run = cell.probes.of(probe).lock();
            match &*run {
                Some(known) if known.due == due => return known.result.clone(),
                // Another one runs: its result is not asked for any more.
                Some(ProbeRun { result: None, .. }) => return None,
                _ => *run = Some(ProbeRun { due, result: None }),
            }
        }
        let target = ProbeTarget {
            id: cell.state.lock().id.as_str().into(),
            address: self.pod_address(config.pod),
            container: config.container.clone(),
            probe: config.container[field(probe)].clone(),
        };
        let cell = cell.clone();
        tokio::spawn(async move {
            let outcome = self.run_probe(&target).await;
            let result = ProbeResult {
                good: outcome.is_ok(),
                steady: false,
                is_of_pod: false,
                is_measured: true,
                output: outcome.err(),
            };
            if let Some(run) = &mut *cell.probes.of(probe).lock() {
                run.result = Some(result);
            }
            self.wake_pod(&cell.uid);
        });
        None
    }

    /// Runs a probe; the error is its output.
    async fn run_probe(&self, target: &ProbeTarget) -> Result<(), String> {
        let probe = &target.probe;
        let limit = seconds(&probe["timeoutSeconds"]).max(Duration::from_secs(1));
        if !probe["exec"].is_null() {
            return self.run_exec_probe(target, limit).await;
        }
        let run = async {
            if !probe["httpGet"].is_null() {
                let get = &probe["httpGet"];
                http_get(&target.container, get, &target.address).await
            } else if !probe["tcpSocket"].is_null() {
                dial(&target.container, &probe["tcpSocket"], &target.address).await
            } else {
                check_grpc(&probe["grpc"], &target.address).await
            }
        };
        let late = || Err(format!("probe timed out after {} s", limit.as_secs()));
        timeout(limit, run).await.unwrap_or_else(|_| late())
    }

    async fn run_exec_probe(&self, target: &ProbeTarget, limit: Duration) -> Result<(), String> {
        let command = target.probe["exec"]["command"].list().iter();
        let exec = ExecSyncRequest {
            container_id: target.id.clone(),
            cmd: command.map(|word| word.str().to_owned()).collect(),
            timeout: limit.as_secs() as i64,
        };
        match self.client.call(exec).await {
            Ok(ended) if ended.exit_code == 0 => Ok(()),
            Ok(ended) => {
                let mut output = [ended.stdout, ended.stderr].concat();
                output.truncate(MAX_OUTPUT);
                Err(String::from_utf8_lossy(&output).into_owned())
            }
            Err(error) if error.code == Code::DeadlineExceeded => {
                Err(format!("command timed out after {} s", limit.as_secs()))
            }
            Err(error) => Err(error.message),
        }
    }
}

/// A port by number, or by its name in the container.
fn port(container: &Value, port: &Value) -> Result<u16, String> {
    let number = match port {
        Value::Int(number) => *number,
        name => {
            let mut ports = container["ports"].list().iter();
            let found = ports.find(|port| port["name"] == *name);
            found.map_or(0, |port| port["containerPort"].int())
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

/// The address of an action: its own host, or the pod's.
fn host(action: &Value, address: &str) -> String {
    match action["host"].str() {
        "" => address.into(),
        host => host.into(),
    }
}

fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

async fn connect(authority: &str) -> Result<TcpStream, String> {
    let connected = TcpStream::connect(authority).await;
    connected.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("dial tcp {authority}: connect: connection refused")
        }
        _ => format!("dial tcp {authority}: {error}"),
    })
}

async fn dial(container: &Value, action: &Value, address: &str) -> Result<(), String> {
    let port = port(container, &action["port"])?;
    let authority = authority(&host(action, address), port);
    connect(&authority).await.map(drop)
}

/// Kubernetes: codes from 200 to 399 are a success (pkg/probe/http).
async fn http_get(container: &Value, action: &Value, address: &str) -> Result<(), String> {
    let code = get(container, action, address).await?;
    match code {
        200..400 => Ok(()),
        code => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// Calls the URL of a hook.
pub(super) async fn http_hook(
    container: &Value,
    action: &Value,
    address: &str,
) -> Result<(), String> {
    let call = get(container, action, address);
    match timeout(HOOK_TIMEOUT, call).await {
        Ok(called) => called.map(drop),
        Err(_) => Err("timed out".into()),
    }
}

async fn get(container: &Value, action: &Value, address: &str) -> Result<u16, String> {
    if action["scheme"].str() == "HTTPS" {
        return Err("HTTPS is not supported by the probes of this node".into());
    }
    let port = port(container, &action["port"])?;
    let authority = authority(&host(action, address), port);
    let path = match action["path"].str() {
        "" => "/",
        path => path,
    };
    let mut request = Request::get(path).header(header::USER_AGENT, "kube-probe/1.36");
    let headers = action["httpHeaders"].list().iter();
    let has_host = headers
        .clone()
        .any(|it| it["name"].str().eq_ignore_ascii_case("host"));
    if !has_host {
        request = request.header(header::HOST, &authority);
    }
    for own in headers {
        request = request.header(own["name"].str(), own["value"].str());
    }
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let stream = connect(&authority).await?;
    let failed = |error: hyper::Error| format!("Get \"http://{authority}{path}\": {error}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(failed)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_OUTPUT);
        let _ = body.collect().await;
        Ok(code)
    };
    // The connection ends with its sender.
    let (answered, _) = tokio::join!(exchange, connection);
    answered
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The status of a service that serves.
const SERVING: i32 = 1;

async fn check_grpc(action: &Value, address: &str) -> Result<(), String> {
    let port = port(&Value::Null, &action["port"])?;
    let target = format!("http://{}", authority(address, port));
    let endpoint = Endpoint::from_shared(target).map_err(|error| error.to_string())?;
    let channel = endpoint.connect().await.map_err(|error| {
        format!(
            "failed to connect service {:?}: {error}",
            authority(address, port)
        )
    })?;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| error.to_string())?;
    let request = HealthCheckRequest {
        service: action["service"].str().into(),
    };
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let checked = grpc.unary(tonic::Request::new(request), path, codec).await;
    let status = checked.map_err(|error| format!("health rpc probe failed: {error}"))?;
    match status.into_inner().status {
        SERVING => Ok(()),
        status => {
            let name = match status {
                2 => "NOT_SERVING",
                3 => "SERVICE_UNKNOWN",
                _ => "UNKNOWN",
            };
            Err(format!("service unhealthy (responded with {name:?})"))
        }
    }
}
