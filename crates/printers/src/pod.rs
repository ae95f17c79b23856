//! Table cells of pods: ready containers, status and restarts.

use mizzen_value::Value;

use super::row;
use super::text::{NONE, age, is_true, since, text_or};
use mizzen_component_helpers::pod_state::{is_sidecar, is_terminal};

pub(super) fn cells(pod: &Value, now: i64) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = PodSummary::of(pod);
    // How many containers have to be ready: those that stay, wherever they are listed.
    let sidecars = spec["initContainers"]
        .items()
        .filter(|container| is_sidecar(container));
    let n_containers = spec["containers"].list().len() + sidecars.count();
    let gates = spec["readinessGates"].list();
    let open = gates
        .iter()
        .filter(|gate| is_true(&status["conditions"], gate["conditionType"].str()));
    let gates = match gates.len() {
        0 => NONE.into(),
        n_gates => format!("{}/{n_gates}", open.count()),
    };
    row![
        format!("{}/{}", summary.ready, n_containers),
        summary.reason,
        summary.restarts.show(now),
        age(pod, now),
        text_or(&status["podIPs"][0]["ip"], NONE),
        text_or(&spec["nodeName"], NONE),
        text_or(&status["nominatedNodeName"], NONE),
        gates,
    ]
}

/// How often containers were restarted, and when last.
#[derive(Default, Clone, Copy)]
struct Restarts<'a> {
    count: i64,
    /// RFC 3339 in UTC, so the later one is the greater one.
    last: Option<&'a str>,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, container: &'a Value) {
        self.count += container["restartCount"].int();
        self.last = self
            .last
            .max(container["lastState"]["terminated"]["finishedAt"].as_str());
    }

    fn show(&self, now: i64) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, since(&last.into(), now))
            }
            _ => self.count.to_string(),
        }
    }
}

struct PodSummary<'a> {
    reason: String,
    ready: usize,
    restarts: Restarts<'a>,
}

impl<'a> PodSummary<'a> {
    fn of(pod: &'a Value) -> PodSummary<'a> {
        let status = &pod["status"];
        let mut summary = PodSummary {
            reason: first_reason(status),
            ready: 0,
            restarts: Restarts::default(),
        };
        let mut sidecars = Restarts::default();
        let initializing = summary.add_init_containers(pod, &mut sidecars);
        if !initializing || is_true(&status["conditions"], "Initialized") {
            summary.restarts = sidecars;
            summary.add_containers(status);
        }
        summary.add_deletion(pod);
        summary
    }

    /// Returns whether an init container has yet to end.
    fn add_init_containers(&mut self, pod: &'a Value, sidecars: &mut Restarts<'a>) -> bool {
        let containers = pod["spec"]["initContainers"].list();
        for (index, container) in pod["status"]["initContainerStatuses"].items().enumerate() {
            let stays = containers
                .iter()
                .any(|it| it["name"] == container["name"] && is_sidecar(it));
            self.restarts.add(container);
            if stays {
                sidecars.add(container);
            }
            let terminated = &container["state"]["terminated"];
            let succeeded = !terminated.is_null() && terminated["exitCode"].int() == 0;
            let started = stays && container["started"].bool();
            if started && !succeeded {
                self.ready += usize::from(container["ready"].bool());
            }
            if !succeeded && !started {
                let state = &container["state"];
                self.reason = match waiting_reason(state) {
                    _ if !state["terminated"].is_null() => {
                        format!("Init:{}", end_reason(&state["terminated"]))
                    }
                    Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
                    _ => format!("Init:{index}/{}", containers.len()),
                };
                return true;
            }
        }
        false
    }

    /// The first container that has something to say has the last word.
    fn add_containers(&mut self, status: &'a Value) {
        let (mut running, mut failure) = (false, None);
        for container in status["containerStatuses"].items().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            if let Some(reason) = waiting_reason(state) {
                self.reason = reason.into();
            } else if !state["terminated"].is_null() {
                self.reason = end_reason(&state["terminated"]);
                if state["terminated"]["exitCode"].int() != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"].bool() && !state["running"].is_null() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            self.reason = match failure {
                _ if running && is_true(&status["conditions"], "Ready") => "Running".into(),
                Some(failure) => failure,
                None if running => "NotReady".into(),
                None => "Completed".into(),
            };
        }
    }

    fn add_deletion(&mut self, pod: &Value) {
        let status = &pod["status"];
        let is_going = !pod["metadata"]["deletionTimestamp"].is_null();
        let has_ended = is_terminal(pod);
        if is_going && status["reason"].str() == "NodeLost" {
            self.reason = "Unknown".into();
        } else if is_going && !has_ended {
            self.reason = "Terminating".into();
        }
    }
}

fn first_reason(status: &Value) -> String {
    let gated = "SchedulingGated";
    let scheduled = |it: &Value| it["type"].str() == "PodScheduled" && it["reason"].str() == gated;
    if status["conditions"].items().any(scheduled) {
        return gated.into();
    }
    text_or(&status["reason"], status["phase"].str()).into()
}

fn waiting_reason(state: &Value) -> Option<&str> {
    state["waiting"]["reason"]
        .as_str()
        .filter(|reason| !reason.is_empty())
}

fn end_reason(terminated: &Value) -> String {
    match (terminated["reason"].str(), terminated["signal"].int()) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].int()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.into(),
    }
}
