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
use mizzen_sdk::metrics::{DEFAULT_BOUNDS, Families, Histogram};
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

/// Kubernetes: how often a probe is tried (pkg/kubelet/prober, `maxProbeRetries`).
const MAX_TRIES: usize = 3;
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

/// The results of a probe of a container, whichever instance.
pub(super) struct ProbeCounts {
    n_successful: u64,
    n_failed: u64,
    /// How long those that succeeded took, in seconds.
    durations: Histogram,
}

impl Default for ProbeCounts {
    fn default() -> ProbeCounts {
        ProbeCounts {
            n_successful: 0,
            n_failed: 0,
            durations: Histogram::new(&DEFAULT_BOUNDS),
        }
    }
}

/// The outcome of a probe; one that succeeded may have a warning.
type ProbeOutcome = Result<Option<String>, ProbeError>;

/// Why a probe did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ProbeError {
    /// The container does not answer as it should: the output.
    Failed(String),
    /// It was not probed: the state of the container is unknown.
    Unknown(String),
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
            let began = Instant::now();
            let outcome = self.run_probe_with_retries(&target).await;
            self.count_probe(&cell, probe, &outcome, began.elapsed());
            let result = ProbeResult {
                good: outcome.is_ok(),
                is_unknown: matches!(outcome, Err(ProbeError::Unknown(_))),
                steady: false,
                is_of_pod: false,
                is_measured: true,
                output: None,
            };
            let result = match outcome {
                Ok(None) => result,
                Ok(Some(warning)) => {
                    let message = format!("{probe:?} probe warning: {warning}");
                    cell.record(Note::warning("ProbeWarning", "", message));
                    result
                }
                Err(ProbeError::Failed(output)) => ProbeResult {
                    output: Some(output),
                    ..result
                },
                Err(ProbeError::Unknown(error)) => {
                    let message =
                        format!("{probe:?} probe errored and resulted in unknown state: {error}");
                    cell.record(Note::warning("Unhealthy", "", message));
                    result
                }
            };
            if let Some(run) = &mut *cell.probes.of(probe).lock() {
                run.result = Some(result);
            }
            self.wake_pod(&cell.uid);
        });
        None
    }

    /// Kubernetes: an outcome that is unknown is not counted (pkg/kubelet/prober/worker.go).
    fn count_probe(
        &self,
        cell: &ContainerCell,
        probe: ProbeType,
        outcome: &ProbeOutcome,
        took: Duration,
    ) {
        let mut pods = self.pods.lock();
        let Some(record) = pods.get_mut(&cell.uid) else {
            return;
        };
        let counts = record.probe_counts.entry((cell.name.clone(), probe));
        let counts = counts.or_default();
        match outcome {
            Ok(_) => {
                counts.n_successful += 1;
                counts.durations.observe(took.as_secs_f64());
            }
            Err(ProbeError::Failed(_)) => counts.n_failed += 1,
            Err(ProbeError::Unknown(_)) => {}
        }
    }

    /// Adds the results of probes to a scrape. Kubernetes: pkg/kubelet/prober/prober_manager.go.
    pub(super) fn collect_probes(&self, families: &mut Families) {
        for (uid, record) in &*self.pods.lock() {
            for ((container, probe), counts) in &record.probe_counts {
                let probe = format!("{probe:?}");
                let labels = [
                    ("probe_type", probe.as_str()),
                    ("container", container),
                    ("pod", record.key.name()),
                    ("namespace", record.key.namespace()),
                ];
                for (result, n) in [
                    ("successful", counts.n_successful),
                    ("failed", counts.n_failed),
                ] {
                    let total = families.counter(
                        "prober_probe_total",
                        "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.",
                    );
                    if n > 0 {
                        let more = [("result", result), ("pod_uid", uid)];
                        total.add(&[&labels[..], &more].concat(), n);
                    }
                }
                if !counts.durations.is_empty() {
                    let durations = families.histogram(
                        "prober_probe_duration_seconds",
                        "[ALPHA] Duration in seconds for a probe response.",
                    );
                    durations.add_histogram(&labels, &counts.durations);
                }
            }
        }
    }

    /// Kubernetes: what could not be probed is tried again at once (pkg/kubelet/prober/prober.go).
    async fn run_probe_with_retries(&self, target: &ProbeTarget) -> ProbeOutcome {
        let mut n_tries = 1;
        loop {
            match self.run_probe(target).await {
                Err(ProbeError::Unknown(_)) if n_tries < MAX_TRIES => n_tries += 1,
                outcome => return outcome,
            }
        }
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
            let action = &probe["tcpSocket"];
            let port = port(&target.container, &action["port"]).map_err(ProbeError::Unknown)?;
            let authority = authority(host(action, &target.address), port);
            let dialled = dial(&authority);
            match timeout(limit, dialled).await {
                Ok(dialled) => dialled.map(good).map_err(ProbeError::Failed),
                Err(_) => Err(ProbeError::Failed("dial tcp: i/o timeout".into())),
            }
        } else {
            let checked = check_grpc(&probe["grpc"], &target.address, limit).await;
            checked.map(good).map_err(ProbeError::Failed)
        }
    }

    /// Kubernetes: only an exit code and a timeout are a failure (pkg/probe/exec). Where the program
    /// is missing, or the runtime is, the state is unknown.
    async fn run_exec_probe(
        &self,
        target: &ProbeTarget,
        limit: Duration,
    ) -> Result<(), ProbeError> {
        let command = target.probe["exec"]["command"].list().iter();
        let command: Vec<String> = command.map(|word| word.str().to_owned()).collect();
        let shown = command.join(" ");
        let exec = ExecSyncRequest {
            container_id: target.id.clone(),
            cmd: command,
            timeout: limit.as_secs() as i64,
        };
        match self.client.call(exec).await {
            Ok(ended) if ended.exit_code == 0 => Ok(()),
            Ok(ended) => {
                let mut output = [ended.stdout, ended.stderr].concat();
                output.truncate(MAX_OUTPUT);
                let output = String::from_utf8_lossy(&output).into_owned();
                Err(ProbeError::Failed(output))
            }
            Err(error) if error.code == Code::DeadlineExceeded => {
                let limit = duration_text(limit.as_nanos() as i64);
                Err(ProbeError::Failed(format!(
                    "command timed out: {shown:?} timed out after {limit}"
                )))
            }
            Err(error) => Err(ProbeError::Unknown(error.to_string())),
        }
    }
}

async fn dial(authority: &str) -> Result<(), String> {
    let dialled = mizzen_transport::dial(authority).await;
    dialled.map(drop).map_err(|error| error.to_string())
}

/// Kubernetes: codes from 200 to 399 are a success, a redirect to another host with a warning
/// (pkg/probe/http).
async fn http_get(target: &ProbeTarget, limit: Duration) -> ProbeOutcome {
    let action = &target.probe["httpGet"];
    let request = HttpAction::new(&target.container, action, &target.address, "probe");
    let request = request.map_err(ProbeError::Unknown)?;
    let sent = request.send(Instant::now() + limit).await;
    match sent.map_err(ProbeError::Failed)? {
        (200..300, _) => Ok(None),
        (300..400, body) => Ok(Some(format!(
            "Probe terminated redirects, Response body: {body}"
        ))),
        (code, _) => {
            let output = format!("HTTP probe failed with statuscode: {code}");
            Err(ProbeError::Failed(output))
        }
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
