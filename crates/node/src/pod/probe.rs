//! Probes of a container (upstream: pkg/kubelet/prober).
//!
//! A probe whose result cannot change does not run again, so healthy pods cost no timers.

use mizzen_value::Value;

use super::spec::field;
use crate::moment::{Moment, earlier, seconds};
use crate::runtime::{ContainerConfig, ContainerHandle, ProbeResult, ProbeType};

/// The probes of one running container.
#[derive(Debug, Default)]
pub(super) struct Probes {
    startup: ProbeWorker,
    readiness: ProbeWorker,
    liveness: ProbeWorker,
}

/// The state of one probe.
#[derive(Debug, Default)]
struct ProbeWorker {
    next: Option<Moment>,
    last: Option<bool>,
    /// The number of consecutive equal results.
    run: i64,
    /// The result after its threshold.
    result: Option<bool>,
    /// Whether results stay the same until the container or its pod changes.
    is_settled: bool,
}

/// The results of a run of probes.
#[derive(Debug, Default)]
pub(super) struct ProbeFindings {
    /// Failed probes, with their output if it is known.
    pub failed: Vec<(ProbeType, Option<String>)>,
    /// The probe because of which the container is killed.
    pub fatal: Option<ProbeType>,
    /// When to run again; `None` if nothing can change.
    pub wake: Option<Moment>,
}

/// A container that is probed.
pub(super) struct ProbeTarget<'a> {
    pub config: ContainerConfig<'a>,
    pub body: &'a dyn ContainerHandle,
    /// When it started.
    pub since: Moment,
    /// Whether its pod is terminating: then startup and liveness probes are off.
    pub ending: bool,
}

impl Probes {
    /// Whether the startup probe has succeeded.
    pub(super) fn has_started(&self, spec: &Value) -> bool {
        spec[field(ProbeType::Startup)].is_null() || self.startup.result == Some(true)
    }

    /// The result of the readiness probe, if there is one.
    pub(super) fn is_ready(&self, spec: &Value) -> Option<bool> {
        let has = !spec[field(ProbeType::Readiness)].is_null();
        has.then(|| self.readiness.result == Some(true))
    }

    /// The state before the agent restarted, from the pod's status.
    pub(super) fn restored(started: bool, ready: bool) -> Probes {
        let known = |result: bool| ProbeWorker {
            result: Some(result).filter(|result| *result),
            ..ProbeWorker::default()
        };
        Probes {
            startup: known(started),
            readiness: known(ready),
            liveness: ProbeWorker::default(),
        }
    }

    /// Runs all probes that are due.
    pub(super) fn run_due(&mut self, target: &ProbeTarget, now: Moment) -> ProbeFindings {
        let mut findings = ProbeFindings::default();
        for probe in [
            ProbeType::Startup,
            ProbeType::Readiness,
            ProbeType::Liveness,
        ] {
            if !self.is_on(probe, target) {
                continue;
            }
            let worker = self.worker(probe);
            worker.run_due(probe, target, now, &mut findings);
            let fails = worker.result == Some(false) && probe != ProbeType::Readiness;
            if fails {
                findings.fatal.get_or_insert(probe);
            } else {
                let health = target.body.foresee_probe(probe, &target.config, now);
                findings.wake = earlier(findings.wake, worker.wakes(health.as_ref(), now));
            }
        }
        findings
    }

    /// Whether a probe is active now.
    fn is_on(&self, probe: ProbeType, target: &ProbeTarget) -> bool {
        let container = target.config.container;
        let has = !container[field(probe)].is_null();
        has && match probe {
            ProbeType::Startup => self.startup.result.is_none() && !target.ending,
            ProbeType::Readiness => self.has_started(container),
            ProbeType::Liveness => self.has_started(container) && !target.ending,
        }
    }

    fn worker(&mut self, probe: ProbeType) -> &mut ProbeWorker {
        match probe {
            ProbeType::Startup => &mut self.startup,
            ProbeType::Readiness => &mut self.readiness,
            ProbeType::Liveness => &mut self.liveness,
        }
    }
}

impl ProbeWorker {
    fn run_due(
        &mut self,
        probe: ProbeType,
        target: &ProbeTarget,
        now: Moment,
        findings: &mut ProbeFindings,
    ) {
        let spec = &target.config.container[field(probe)];
        let period = seconds(&spec["periodSeconds"]).max(std::time::Duration::from_secs(1));
        let first = target.since + seconds(&spec["initialDelaySeconds"]);
        let mut next = self.next.unwrap_or(first);
        // The pod's current answer does not apply to the time when the probe was settled.
        let is_settled = std::mem::take(&mut self.is_settled);
        let foreseen = || target.body.foresee_probe(probe, &target.config, now);
        if is_settled && foreseen().is_some_and(|health| health.is_of_pod) {
            while next < now {
                next += period;
            }
        }
        while next <= now && !(probe != ProbeType::Readiness && self.result == Some(false)) {
            let Some(health) = target.body.probe(probe, &target.config, next) else {
                break;
            };
            // Kubernetes: the result of a probe that errored is dropped (worker.go, `doProbe`).
            if !health.is_unknown {
                self.answer(health.good, spec);
                if !health.good {
                    findings.failed.push((probe, health.output));
                }
            }
            next += period;
            // Kubernetes: ticks that pass while a probe runs are dropped.
            while health.is_measured && next <= now {
                next += period;
            }
        }
        self.next = Some(next);
    }

    fn answer(&mut self, good: bool, spec: &Value) {
        self.run = if self.last == Some(good) {
            self.run + 1
        } else {
            1
        };
        self.last = Some(good);
        let (name, usual) = if good {
            ("successThreshold", 1)
        } else {
            ("failureThreshold", 3)
        };
        if self.run >= spec[name].as_int().unwrap_or(usual) {
            self.result = Some(good);
        }
    }

    fn wakes(&mut self, foreseen: Option<&ProbeResult>, now: Moment) -> Option<Moment> {
        self.is_settled = foreseen.is_some_and(|health| {
            let known = Some(health.good);
            health.steady && self.last == known && self.result == known
        });
        // The runtime wakes the agent when a probe that runs now has ended.
        self.next.filter(|next| !self.is_settled && *next > now)
    }
}

/// The output of a failed probe, as the kubelet's probers have it.
pub(super) fn output(probe: &Value, address: &str) -> String {
    if !probe["httpGet"].is_null() {
        return "HTTP probe failed with statuscode: 503".into();
    }
    match &probe["tcpSocket"]["port"] {
        Value::Int(port) => format!("dial tcp {address}:{port}: connect: connection refused"),
        Value::Null if probe["grpc"].is_null() => String::new(),
        Value::Null => "service unhealthy (responded with \"NOT_SERVING\")".into(),
        port => format!(
            "dial tcp {address}:{}: connect: connection refused",
            port.str()
        ),
    }
}
