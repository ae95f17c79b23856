//! Is a container well? Probes on their periods, and what follows from what they find.
//!
//! A probe whose answer cannot change is not asked again: a thousand healthy pods cost no timers.

use mizzen_value::Value;

use super::spec::field;
use crate::moment::{Moment, earlier, seconds};
use crate::runtime::{Container, Health, Probe, Wish};

/// The probes of one container that runs.
#[derive(Debug, Default)]
pub(super) struct Probes {
    startup: Worker,
    readiness: Worker,
    liveness: Worker,
}

/// What is known of one probe.
#[derive(Debug, Default)]
struct Worker {
    next: Option<Moment>,
    last: Option<bool>,
    /// How often the last answer was given in a row.
    run: i64,
    /// What was answered often enough.
    result: Option<bool>,
    /// Whether the answers stay so until something is heard of the container or its pod.
    is_settled: bool,
}

/// What probes have found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Probes that failed, once for each time, and what they said if that is known.
    pub failed: Vec<(Probe, Option<String>)>,
    /// The probe because of which the container must end.
    pub fatal: Option<Probe>,
    /// When to ask again; none if nothing can change.
    pub wake: Option<Moment>,
}

/// A container that is asked.
pub(super) struct Asked<'a> {
    /// The container as its specification wants it.
    pub wish: Wish<'a>,
    /// The container itself.
    pub body: &'a dyn Container,
    /// Since when it runs.
    pub since: Moment,
    /// Whether its pod ends: then nobody asks whether it is alive.
    pub ending: bool,
}

impl Probes {
    /// Whether the container has started.
    pub(super) fn has_started(&self, spec: &Value) -> bool {
        spec[field(Probe::Startup)].is_null() || self.startup.result == Some(true)
    }

    /// Whether the container can be used, if a probe says so.
    pub(super) fn is_ready(&self, spec: &Value) -> Option<bool> {
        let has = !spec[field(Probe::Readiness)].is_null();
        has.then(|| self.readiness.result == Some(true))
    }

    /// Takes over what was known before the agent was restarted.
    pub(super) fn restored(started: bool, ready: bool) -> Probes {
        let known = |result: bool| Worker {
            result: Some(result).filter(|result| *result),
            ..Worker::default()
        };
        Probes {
            startup: known(started),
            readiness: known(ready),
            liveness: Worker::default(),
        }
    }

    /// Asks whatever is to be asked up to now.
    pub(super) fn ask(&mut self, asked: &Asked, now: Moment) -> Findings {
        let mut findings = Findings::default();
        for probe in [Probe::Startup, Probe::Readiness, Probe::Liveness] {
            if !self.is_on(probe, asked) {
                continue;
            }
            let worker = self.worker(probe);
            worker.ask(probe, asked, now, &mut findings);
            let fails = worker.result == Some(false) && probe != Probe::Readiness;
            if fails {
                findings.fatal.get_or_insert(probe);
            } else {
                let health = asked.body.probe(probe, &asked.wish, now);
                findings.wake = earlier(findings.wake, worker.wakes(&health));
            }
        }
        findings
    }

    /// Whether a probe is asked at all right now.
    fn is_on(&self, probe: Probe, asked: &Asked) -> bool {
        let container = asked.wish.container;
        let has = !container[field(probe)].is_null();
        has && match probe {
            Probe::Startup => self.startup.result.is_none() && !asked.ending,
            Probe::Readiness => self.has_started(container),
            Probe::Liveness => self.has_started(container) && !asked.ending,
        }
    }

    fn worker(&mut self, probe: Probe) -> &mut Worker {
        match probe {
            Probe::Startup => &mut self.startup,
            Probe::Readiness => &mut self.readiness,
            Probe::Liveness => &mut self.liveness,
        }
    }
}

impl Worker {
    fn ask(&mut self, probe: Probe, asked: &Asked, now: Moment, findings: &mut Findings) {
        let spec = &asked.wish.container[field(probe)];
        let period = seconds(&spec["periodSeconds"]).max(std::time::Duration::from_secs(1));
        let first = asked.since + seconds(&spec["initialDelaySeconds"]);
        let mut next = self.next.unwrap_or(first);
        // What the pod says now it did not say while nothing was asked.
        let is_settled = std::mem::take(&mut self.is_settled);
        if is_settled && asked.body.probe(probe, &asked.wish, now).is_of_pod {
            while next < now {
                next += period;
            }
        }
        while next <= now && !(probe != Probe::Readiness && self.result == Some(false)) {
            let health = asked.body.probe(probe, &asked.wish, next);
            self.answer(health.good, spec);
            if !health.good {
                findings.failed.push((probe, health.output));
            }
            next += period;
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

    fn wakes(&mut self, health: &Health) -> Option<Moment> {
        let known = Some(health.good);
        self.is_settled = health.steady && self.last == known && self.result == known;
        self.next.filter(|_| !self.is_settled)
    }
}

/// What a failed probe says, as the kubelet's probers do.
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
