//! Probes and HTTP hooks, from the node (upstream: pkg/probe). Commands run in the container.
//!
//! A probe is a task. Its result waits for the agent, which asks for it by the moment at which the
//! probe was due.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use mizzen_cri::Code;
use mizzen_cri::messages::ExecSyncRequest;
use mizzen_sdk::event::Note;
use mizzen_value::Value;
use mizzen_value::time::duration_text;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::CriNode;
use super::container::ContainerCell;
use super::http_action::{HttpAction, authority, host, port};
use crate::moment::{Moment, seconds};
use crate::pod::spec::field;
use crate::runtime::{ContainerConfig, ProbeResult, ProbeType};

/// Kubernetes: the most of an output that is kept (pkg/probe).
const MAX_OUTPUT: usize = 10 << 10;
/// Kubernetes: the timeout of an HTTP hook (pkg/kubelet/lifecycle/handlers.go).
const HOOK_TIMEOUT: Duration = Duration::from_secs(60);
/// Go: the error of a request with TLS to a server without it. A hook is called without TLS then.
const NO_TLS: &str = "server gave HTTP response to HTTPS client";

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

/// The outcome of a probe: the warning of one that succeeded, or the output of one that failed.
type ProbeOutcome = Result<Option<String>, String>;

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
            if let Ok(Some(warning)) = &outcome {
                let message = format!("{probe:?} probe warning: {warning}");
                cell.record(Note::warning("ProbeWarning", "", message));
            }
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

    async fn run_probe(&self, target: &ProbeTarget) -> ProbeOutcome {
        let probe = &target.probe;
        let limit = seconds(&probe["timeoutSeconds"]).max(Duration::from_secs(1));
        let good = |(): ()| None;
        if !probe["exec"].is_null() {
            self.run_exec_probe(target, limit).await.map(good)
        } else if !probe["httpGet"].is_null() {
            http_get(target, limit).await
        } else if !probe["tcpSocket"].is_null() {
            let dialled = dial(&target.container, &probe["tcpSocket"], &target.address);
            match timeout(limit, dialled).await {
                Ok(dialled) => dialled.map(good),
                Err(_) => Err("dial tcp: i/o timeout".into()),
            }
        } else {
            check_grpc(&probe["grpc"], &target.address, limit)
                .await
                .map(good)
        }
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

async fn dial(container: &Value, action: &Value, address: &str) -> Result<(), String> {
    let port = port(container, &action["port"])?;
    let authority = authority(host(action, address), port);
    let dialled = mizzen_transport::dial(&authority).await;
    dialled.map(drop).map_err(|error| error.to_string())
}

/// Kubernetes: codes from 200 to 399 are a success, a redirect to another host with a warning
/// (pkg/probe/http).
async fn http_get(target: &ProbeTarget, limit: Duration) -> ProbeOutcome {
    let action = &target.probe["httpGet"];
    let request = HttpAction::new(&target.container, action, &target.address, "probe")?;
    match request.send(Instant::now() + limit).await? {
        (200..300, _) => Ok(None),
        (300..400, body) => Ok(Some(format!(
            "Probe terminated redirects, Response body: {body}"
        ))),
        (code, _) => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

/// Calls the URL of a hook. Kubernetes: whatever the status of the response is
/// (pkg/kubelet/lifecycle/handlers.go).
pub(super) async fn http_hook(
    container: &Value,
    action: &Value,
    address: &str,
) -> Result<(), String> {
    let until = Instant::now() + HOOK_TIMEOUT;
    let request = HttpAction::new(container, action, address, "lifecycle")?;
    match request.send(until).await {
        Err(error) if error.ends_with(NO_TLS) => {
            let plain = HttpAction::in_plaintext(container, action, address);
            plain.send(until).await.map(drop)
        }
        called => called.map(drop),
    }
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

/// Kubernetes: pkg/probe/grpc.
async fn check_grpc(action: &Value, address: &str, limit: Duration) -> Result<(), String> {
    let port = port(&Value::Null, &action["port"])?;
    let (authority, limit_text) = (
        authority(address, port),
        duration_text(limit.as_nanos() as i64),
    );
    let endpoint =
        Endpoint::from_shared(format!("http://{authority}")).map_err(|error| error.to_string())?;
    let until = Instant::now() + limit;
    let Ok(Ok(channel)) = timeout_at(until, endpoint.connect()).await else {
        return Err(format!(
            "timeout: failed to connect service {authority:?} within {limit_text}: context deadline exceeded"
        ));
    };
    let late = || format!("timeout: health rpc did not complete within {limit_text}");
    let checked = timeout_at(until, call_health(channel, action["service"].str())).await;
    match checked.map_err(|_| late())? {
        Ok(SERVING) => Ok(()),
        Ok(status) => {
            let name = match status {
                2 => "NOT_SERVING",
                3 => "SERVICE_UNKNOWN",
                _ => "UNKNOWN",
            };
            Err(format!("service unhealthy (responded with {name:?})"))
        }
        Err(status) => Err(match status.code() {
            Code::Unimplemented => format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            ),
            Code::DeadlineExceeded => late(),
            code => format!(
                "error: health rpc probe failed: rpc error: code = {code:?} desc = {}",
                status.message()
            ),
        }),
    }
}

/// The status of a service.
async fn call_health(channel: Channel, service: &str) -> Result<i32, tonic::Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready()
        .await
        .map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let request = HealthCheckRequest {
        service: service.into(),
    };
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let checked = grpc
        .unary(tonic::Request::new(request), path, codec)
        .await?;
    Ok(checked.into_inner().status)
}
