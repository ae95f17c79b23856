//! Pods as data: a specification, a script, and the status after some milliseconds.

use mizzen_sdk::Key;
use mizzen_value::{json, value, yaml};

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::*;
use crate::runtime::{
    Chunk, ContainerConfig, ContainerHandle, ContainerLife, ContainerStatus, ContainerUsage, Exec,
    FoundContainer, LogLine, PodConnection, ProbeResult, ProbeType, Simulated, Stdio, StopTimes,
    Termination, Unacceptable,
};
use crate::status::{self, Host};

/// A pod whose status is written whenever it changes.
struct Play {
    object: Value,
    pod: PodState,
    now: Moment,
    told: Vec<String>,
    runtime: Arc<dyn ContainerRuntime>,
}

const BEGIN: Moment = Moment::from_secs(1_700_000_000);

impl Play {
    fn new(script: &str, spec: &str) -> Play {
        Play::annotated("mizzen.dev/simulate", script, spec)
    }

    fn annotated(annotation: &str, text: &str, spec: &str) -> Play {
        let spec = yaml::read(format!("{{{spec}}}").as_bytes()).unwrap().value;
        let mut object = value!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "0-1", "generation": 1 },
            "spec": spec,
            "status": { "phase": "Pending" },
        });
        object
            .entry("metadata")
            .entry("annotations")
            .set(annotation, text);
        let mut pod = PodState::new(&object, BEGIN, &Simulated);
        pod.addresses = "10.0.0.9".into();
        let mut play = Play {
            object,
            pod,
            now: BEGIN,
            told: Vec::new(),
            runtime: Arc::new(Simulated),
        };
        play.until(0);
        play
    }

    /// Runs up to some milliseconds after the start.
    fn until(&mut self, millis: u64) {
        let end = BEGIN + Duration::from_millis(millis);
        loop {
            let mut sync =
                SyncContext::new(&self.object, self.now, &*self.runtime, NodeContext::NONE);
            let wakes = self.pod.advance(&mut sync);
            for PodEvent { note, .. } in sync.events {
                self.told.push(format!("{}: {}", note.reason, note.message));
            }
            self.write();
            match wakes.filter(|at| *at <= end) {
                Some(at) => {
                    assert!(at > self.now, "time must pass");
                    self.now = at;
                }
                None => break,
            }
        }
        self.now = end;
    }

    fn write(&mut self) {
        let host = Host {
            address: "127.0.0.1".into(),
            scheme: "simulated".into(),
            recursive_read_only: true,
        };
        let Some(patch) = status::patch(&self.pod, &self.object, &host, self.now) else {
            return;
        };
        let status = self.object.entry("status");
        for (field, value) in patch["status"]
            .entries()
            .filter(|(field, _)| !field.starts_with('$'))
        {
            match value.is_null() {
                true => drop(status.remove(field)),
                false => status.set(field, value.clone()),
            }
        }
    }

    fn delete(&mut self, grace: i64) {
        let at = self.now + Duration::from_secs(grace as u64);
        let metadata = self.object.entry("metadata");
        metadata.set("deletionTimestamp", crate::moment::to_value(at));
        metadata.set("deletionGracePeriodSeconds", grace);
    }

    fn shut_down(&mut self, grace: u64) -> bool {
        let grace = Duration::from_secs(grace);
        self.pod.shut_down(grace, &self.object, self.now)
    }

    fn evict(&mut self, grace: u64) -> bool {
        let eviction = Eviction {
            key: Key::new("ns", "p"),
            uid: "0-1".into(),
            message: "too much".into(),
            annotations: BTreeMap::new(),
            grace: Duration::from_secs(grace),
            is_disruption: true,
        };
        self.pod.evict(eviction, &self.object, self.now)
    }

    fn show(&self) -> String {
        let status = &self.object["status"];
        let mut shown = status["phase"].str().to_string();
        if !status["reason"].is_null() {
            shown += &format!("({})", status["reason"].str());
        }
        for list in [
            "initContainerStatuses",
            "containerStatuses",
            "ephemeralContainerStatuses",
        ] {
            for container in status[list].list() {
                shown += &show_container(container);
            }
        }
        shown
    }

    fn condition(&self, name: &str) -> String {
        let mut conditions = self.object["status"]["conditions"].list().iter();
        let condition = conditions
            .find(|condition| condition["type"].str() == name)
            .unwrap();
        let text = |field: &str| condition[field].str();
        format!("{} {} {}", text("status"), text("reason"), text("message"))
            .trim()
            .to_string()
    }
}

fn show_container(status: &Value) -> String {
    let state = match status["state"].entries().next() {
        Some(("waiting", waiting)) => waiting["reason"].str().to_string(),
        Some(("running", _)) if status["ready"].bool() => "ready".into(),
        Some(("running", _)) if status["started"].bool() => "unready".into(),
        Some(("running", _)) => "unstarted".into(),
        Some(("terminated", end)) => format!("{}:{}", end["reason"].str(), end["exitCode"].int()),
        _ => "?".into(),
    };
    let restarts = Some(status["restartCount"].int())
        .filter(|n| *n > 0)
        .map(|n| format!("+{n}"));
    format!(
        " {}={state}{}",
        status["name"].str(),
        restarts.unwrap_or_default()
    )
}

/// Runs a pod and compares its status after some milliseconds.
#[track_caller]
fn check(script: &str, spec: &str, expected: &[(u64, &str)]) -> Play {
    let mut play = Play::new(script, spec);
    for (millis, shown) in expected {
        play.until(*millis);
        assert_eq!(play.show(), *shown, "after {millis} ms of {script:?}");
    }
    play
}

/// A runtime that cannot create the next containers.
#[derive(Default)]
struct Failing {
    n_failures: AtomicUsize,
    /// Whether it has processes, of which one has ended in a sandbox before the current one.
    has_old_sandbox: bool,
}

struct NotCreated;

impl ContainerHandle for NotCreated {
    fn status(&self, _: Moment) -> ContainerStatus {
        ContainerStatus {
            state: ContainerPhase::Failed {
                reason: "CreateContainerError".into(),
                message: "no room".into(),
            },
            usable: false,
            has_failed_hook: false,
            changes_at: None,
            id: Str::default(),
            image_id: Str::default(),
            user: None,
        }
    }

    fn stop(&mut self, _: StopTimes) {}

    fn update(&mut self, _: &ContainerConfig) {}

    fn probe(&self, _: ProbeType, _: &ContainerConfig, _: Moment) -> Option<ProbeResult> {
        None
    }
}

impl ContainerRuntime for Failing {
    fn version(&self) -> String {
        Simulated.version()
    }

    fn accepts(&self, pod: &Value) -> Result<(), Unacceptable> {
        Simulated.accepts(pod)
    }

    fn runs_processes(&self) -> bool {
        self.has_old_sandbox
    }

    fn find(&self, _: &Value, _: &str, now: Moment) -> Option<FoundContainer> {
        let end = Termination {
            started: Some(now),
            finished: Some(now),
            code: 0,
            reason: "Completed".into(),
            message: Str::default(),
        };
        self.has_old_sandbox.then(|| FoundContainer {
            n_restarts: 0,
            id: "a".into(),
            state: ContainerPhase::Ended(end),
            image_id: Str::default(),
            user: Value::Null,
            last: None,
            is_of_old_sandbox: true,
        })
    }

    fn start(&self, config: &ContainerConfig, now: Moment) -> Box<dyn ContainerHandle> {
        let left = self.n_failures.load(Ordering::Relaxed);
        self.n_failures
            .store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            0 => Simulated.start(config, now),
            _ => Box::new(NotCreated),
        }
    }

    fn logs(&self, life: &ContainerLife, now: Moment) -> Vec<LogLine> {
        Simulated.logs(life, now)
    }

    fn output(&self, life: &ContainerLife, from: Moment, now: Moment) -> Vec<Chunk> {
        Simulated.output(life, from, now)
    }

    fn usage(&self, life: &ContainerLife, from: Moment, to: Moment) -> Option<ContainerUsage> {
        Simulated.usage(life, from, to)
    }

    fn exec(&self, exec: Exec, stdio: Stdio) -> BoxFuture<'static, Result<i64, String>> {
        Simulated.exec(exec, stdio)
    }

    fn connect(
        &self,
        pod: &Value,
        port: u16,
    ) -> BoxFuture<'static, std::io::Result<Box<dyn PodConnection>>> {
        Simulated.connect(pod, port)
    }
}

const WEB: &str = "containers: [{name: web, image: web}]";

#[test]
fn a_container_starts_and_runs_for_ever() {
    check(
        "",
        WEB,
        &[
            (0, "Pending web=ContainerCreating"),
            (10, "Running web=ready"),
            (9_999_999, "Running web=ready"),
        ],
    );
}

#[test]
fn stages_last_as_scripted() {
    let expected = [
        (1_999, "Pending web=ContainerCreating"),
        (2_000, "Running web=unready"),
        (5_000, "Running web=ready"),
        (15_000, "Running web=unready"),
    ];
    check("start 2s, ready 3s, unready 10s", WEB, &expected);
}

#[test]
fn a_pod_that_does_not_restart_ends_with_its_containers() {
    let never = |name: &str| format!("restartPolicy: {name}, {WEB}");
    check(
        "run 1s, exit",
        &never("Never"),
        &[
            (500, "Running web=ready"),
            (1_005, "Succeeded web=Completed:0"),
        ],
    );
    check(
        "run 1s, exit 3",
        &never("Never"),
        &[(1_005, "Failed web=Error:3")],
    );
    check(
        "run 1s, exit",
        &never("OnFailure"),
        &[(1_005, "Succeeded web=Completed:0")],
    );
    check(
        "exit 137 OOMKilled",
        &never("Never"),
        &[(5, "Failed web=OOMKilled:137")],
    );
}

#[test]
fn one_of_two_containers_may_end_before_the_other() {
    let two = "restartPolicy: Never, containers: [{name: a, image: a}, {name: b, image: b}]";
    let expected = [
        (1_500, "Running a=Completed:0 b=ready"),
        (2_005, "Failed a=Completed:0 b=Error:1"),
    ];
    let play = check("a: run 1s, exit; b: run 2s, exit 1", two, &expected);
    assert_eq!(play.condition("Ready"), "False PodFailed");
}

#[test]
fn a_container_that_keeps_exiting_backs_off_exponentially() {
    let expected = [
        (1_005, "Running web=Error:1"),
        (1_200, "Running web=ready+1"),
        (2_110, "Running web=Error:1+1"),
        (2_300, "Running web=CrashLoopBackOff+1"),
        (12_100, "Running web=CrashLoopBackOff+1"),
        (12_200, "Running web=ready+2"),
        (13_300, "Running web=CrashLoopBackOff+2"),
    ];
    let play = check("run 1s, exit 1", WEB, &expected);
    let waiting =
        play.object.at("status.containerStatuses")[0]["state"]["waiting"]["message"].str();
    assert_eq!(
        waiting,
        "back-off 20s restarting failed container=web pod=p_ns(0-1)"
    );
    let last = &play.object.at("status.containerStatuses")[0]["lastState"]["terminated"];
    assert_eq!((last["exitCode"].int(), last["reason"].str()), (1, "Error"));
    assert!(
        play.told
            .contains(&"BackOff: Back-off restarting failed container web in pod p_ns(0-1)".into())
    );
}

#[test]
fn the_back_off_ends_at_five_minutes_and_is_reset_by_a_long_run() {
    let mut play = Play::new("10x exit 1 then run 30m, exit 1", WEB);
    play.until(3_000_000);
    let waits: Vec<String> = play
        .told
        .iter()
        .filter(|told| told.starts_with("BackOff"))
        .cloned()
        .collect();
    assert_eq!(waits.len(), 9);
    assert_eq!(play.show(), "Running web=ready+10");
    play.until(3_500_000);
    let restarted = play.object.at("status.containerStatuses")[0]["restartCount"].int();
    assert_eq!(
        (restarted, play.show().as_str()),
        (11, "Running web=ready+11")
    );
}

#[test]
fn restart_policy_rules_take_precedence_over_the_policy() {
    let spec = "restartPolicy: Never, containers: [{name: web, image: web, restartPolicy: Never, restartPolicyRules: \
                [{action: Restart, exitCodes: {operator: In, values: [42]}}]}]";
    check(
        "exit 42 then exit 1",
        spec,
        &[(5, "Running web=Error:42"), (1_000, "Failed web=Error:1+1")],
    );
}

#[test]
fn a_rule_restarts_all_containers() {
    let spec = "restartPolicy: Never, initContainers: [{name: i, image: i}], containers: [{name: a, image: a, restartPolicy: Never, \
                restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, {name: b, image: b}]";
    let expected = [
        (500, "Running i=Completed:0 a=ready b=ready"),
        (1_015, "Running i=Completed:0 a=Error:42 b=ready"),
        (5_000, "Running i=Completed:0+1 a=ready+1 b=ready+1"),
    ];
    let mut play = check(
        "a: run 1s, exit 42 then run 10s, exit; b: run 20s, stop 2s, exit",
        spec,
        &expected,
    );
    assert_eq!(play.condition("AllContainersRestarting"), "False");
    assert_eq!(play.condition("Initialized"), "True");
    let last = &play.object.at("status.containerStatuses")[1]["lastState"]["terminated"];
    assert_eq!(
        (last["reason"].str(), last["exitCode"].int()),
        ("RestartingAllContainers", 137)
    );
    play.until(60_000);
    assert_eq!(
        play.show(),
        "Succeeded i=Completed:0+1 a=Completed:0+1 b=Completed:0+1"
    );
}

#[test]
fn a_rule_of_a_sidecar_restarts_containers_that_have_ended_for_good() {
    let spec = "restartPolicy: Never, initContainers: [{name: side, image: s, restartPolicy: Always, \
                restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}], \
                containers: [{name: a, image: a}]";
    let mut play = check(
        "side: run 1s, exit 42 then run 100s, stop 1s, exit; a: run 10s, stop 1s, exit",
        spec,
        &[
            (500, "Running side=ready a=ready"),
            (5_000, "Running side=ready+1 a=ready+1"),
        ],
    );
    play.until(60_000);
    assert_eq!(play.show(), "Succeeded side=Error:143+1 a=Completed:0+1");
}

#[test]
fn an_init_container_that_cannot_be_created_again_is_not_skipped() {
    let spec = "restartPolicy: Never, initContainers: [{name: i, image: i}], containers: [{name: a, image: a, restartPolicy: Never, \
                restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}]";
    let script = "a: run 1s, exit 42 then run 5s, exit";
    let mut play = check(script, spec, &[(500, "Running i=Completed:0 a=ready")]);
    let runtime = Arc::new(Failing::default());
    runtime.n_failures.store(1, Ordering::Relaxed);
    play.runtime = runtime;
    play.until(2_000);
    let shown = play.show();
    assert!(shown.contains(" i=CreateContainerError+1"), "{shown}");
    assert!(play.told.contains(&"Failed: Error: no room".into()));
    play.until(60_000);
    assert_eq!(play.show(), "Succeeded i=Completed:0+1 a=Completed:0+1");
}

#[test]
fn an_init_container_of_an_old_sandbox_runs_again_after_a_restart_of_the_agent() {
    let play = Play::new("", INIT);
    let runtime = Failing {
        has_old_sandbox: true,
        ..Failing::default()
    };
    let restored = PodState::new(&play.object, play.now, &runtime);
    for container in &restored.containers {
        let is_first = container.role != ContainerRole::Regular;
        assert_eq!(container.end().is_none(), is_first, "{}", container.name);
        assert_eq!(container.last.is_some(), is_first, "{}", container.name);
        assert_eq!(container.n_restarts(), u32::from(is_first));
    }
}

const INIT: &str = "initContainers: [{name: one, image: i}, {name: side, image: s, restartPolicy: Always}, \
                    {name: two, image: i}], containers: [{name: web, image: web}]";

#[test]
fn init_containers_run_one_after_the_other_and_sidecars_beside() {
    let mut play = check(
        "one: run 1s, exit; two: run 1s, exit",
        INIT,
        &[
            (
                0,
                "Pending one=PodInitializing side=PodInitializing two=PodInitializing web=PodInitializing",
            ),
            (
                500,
                "Pending one=unready side=PodInitializing two=PodInitializing web=PodInitializing",
            ),
        ],
    );
    assert_eq!(
        play.condition("Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [one side two]"
    );
    play.until(1_500);
    assert_eq!(
        play.show(),
        "Pending one=Completed:0 side=ready two=unready web=PodInitializing"
    );
    play.until(3_000);
    assert_eq!(
        play.show(),
        "Running one=Completed:0 side=ready two=Completed:0 web=ready"
    );
    assert_eq!(play.condition("Initialized"), "True");
}

#[test]
fn a_failed_init_container_is_retried_or_fails_the_pod() {
    let spec = "initContainers: [{name: i, image: i}], containers: [{name: web, image: web}]";
    let expected = [
        (5, "Pending i=Error:1 web=PodInitializing"),
        (300, "Pending i=CrashLoopBackOff+1 web=PodInitializing"),
        (20_000, "Running i=Completed:0+2 web=ready"),
    ];
    check("i: 2x exit 1 then exit", spec, &expected);
    check(
        "i: exit 1",
        &format!("restartPolicy: Never, {spec}"),
        &[(5, "Failed i=Error:1 web=PodInitializing")],
    );
}

#[test]
fn a_sidecar_is_stopped_after_the_regular_containers() {
    let spec = "restartPolicy: Never, initContainers: [{name: side, image: s, restartPolicy: Always}], \
                containers: [{name: work, image: w}]";
    let expected = [
        (500, "Running side=ready work=ready"),
        (1_500, "Running side=ready work=Completed:0"),
        (4_000, "Succeeded side=Completed:0 work=Completed:0"),
    ];
    let play = check("work: run 1s, exit; side: run, stop 2s 0", spec, &expected);
    assert_eq!(play.condition("Ready"), "False PodCompleted");
    assert_eq!(play.condition("Initialized"), "True PodCompleted");
    assert_eq!(play.condition("PodReadyToStartContainers"), "False");
}

#[test]
fn a_pod_that_is_deleted_has_its_grace_period() {
    let mut play = check("stop 5s 0", WEB, &[(1_000, "Running web=ready")]);
    play.delete(30);
    play.until(5_900);
    assert_eq!(
        (play.show().as_str(), play.pod.stage == PodStage::Finished),
        ("Running web=ready", false)
    );
    play.until(6_100);
    assert_eq!(
        (play.show().as_str(), play.pod.stage),
        ("Succeeded web=Completed:0", PodStage::Finished)
    );
    assert!(
        play.told
            .contains(&"Killing: Stopping container web".into())
    );
}

#[test]
fn a_container_that_ignores_sigterm_is_killed() {
    let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
    play.delete(10);
    play.until(10_900);
    assert_eq!(play.show(), "Running web=ready");
    play.until(11_000);
    assert_eq!(play.show(), "Failed web=Error:137");
}

#[test]
fn a_grace_period_counts_from_when_the_deletion_is_seen() {
    let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
    play.delete(10);
    // The agent was away, or its clock is ahead of that of the API server.
    let long_ago = crate::moment::to_value(BEGIN.saturating_before(Duration::from_secs(600)));
    let metadata = play.object.entry("metadata");
    metadata.set("deletionTimestamp", long_ago);
    play.until(10_900);
    assert_eq!(play.show(), "Running web=ready");
    play.until(11_000);
    assert_eq!(play.show(), "Failed web=Error:137");
}

#[test]
fn a_second_deletion_may_shorten_the_grace_period() {
    let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
    play.delete(600);
    play.until(2_000);
    play.delete(5);
    play.until(7_100);
    assert_eq!(play.show(), "Failed web=Error:137");
}

#[test]
fn a_pod_ends_within_the_grace_period_of_its_shutdown() {
    let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
    assert!(play.shut_down(4));
    play.until(4_900);
    assert_eq!(play.show(), "Running web=ready");
    play.until(5_000);
    assert_eq!(play.show(), "Failed(Terminated) web=Error:137");
    let message = "Pod was terminated in response to imminent node shutdown.";
    assert_eq!(play.object["status"]["message"].str(), message);
    assert_eq!(
        play.condition("DisruptionTarget"),
        format!("True TerminationByKubelet {message}")
    );
    assert!(!play.shut_down(4), "it has ended");

    let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
    assert!(play.shut_down(0));
    play.until(2_900);
    assert_eq!(play.show(), "Running web=ready");
    // Two seconds after SIGTERM at the earliest.
    play.until(3_000);
    assert_eq!(play.show(), "Failed(Terminated) web=Error:137");
}

#[test]
fn a_pod_that_ends_already_gets_no_more_time_for_a_shutdown() {
    for (deletion, shutdown, end) in [(600, 5, 7_000), (3, 600, 4_000)] {
        let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
        play.delete(deletion);
        play.until(2_000);
        assert!(play.shut_down(shutdown));
        play.until(end - 100);
        assert_eq!(play.show(), "Running web=ready", "{deletion} {shutdown}");
        play.until(end);
        assert_eq!(play.show(), "Failed(Terminated) web=Error:137");
    }
}

#[test]
fn an_eviction_and_a_deletion_only_shorten_each_others_grace_period() {
    for (deletion, eviction, end) in [(600, 5, 7_000), (3, 600, 4_000)] {
        let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
        play.delete(deletion);
        play.until(2_000);
        assert!(play.evict(eviction));
        play.until(end - 100);
        assert_eq!(play.show(), "Running web=ready", "{deletion} {eviction}");
        play.until(end);
        assert_eq!(play.show(), "Failed(Evicted) web=Error:137");
        assert_eq!(
            play.condition("DisruptionTarget"),
            "True TerminationByKubelet too much"
        );
        assert!(!play.evict(1), "it has ended");
    }
    for (eviction, deletion, end) in [(30, 5, 7_000), (5, 600, 6_000)] {
        let mut play = check("stop never", WEB, &[(1_000, "Running web=ready")]);
        assert!(play.evict(eviction));
        play.until(2_000);
        play.delete(deletion);
        play.until(end - 100);
        assert_eq!(play.show(), "Running web=ready", "{eviction} {deletion}");
        play.until(end);
        assert_eq!(play.show(), "Failed(Evicted) web=Error:137");
    }
}

#[test]
fn a_pre_stop_sleep_delays_sigterm() {
    let spec = "containers: [{name: web, image: web, lifecycle: {preStop: {sleep: {seconds: 4}}}}]";
    let mut play = check("", spec, &[(1_000, "Running web=ready")]);
    play.delete(30);
    play.until(4_900);
    assert_eq!(play.show(), "Running web=ready");
    play.until(5_000);
    assert_eq!(play.show(), "Failed web=Error:143");
}

#[test]
fn sidecars_stop_last_and_in_reverse_order() {
    let spec = "initContainers: [{name: a, image: s, restartPolicy: Always}, {name: b, image: s, restartPolicy: Always}], \
                containers: [{name: web, image: w}]";
    let mut play = check(
        "a: stop 1s; b: stop 1s; web: stop 1s",
        spec,
        &[(1_000, "Running a=ready b=ready web=ready")],
    );
    play.delete(30);
    for (millis, shown) in [
        (2_100, "Running a=ready b=ready web=Error:143"),
        (3_100, "Running a=ready b=Error:143 web=Error:143"),
        (4_100, "Failed a=Error:143 b=Error:143 web=Error:143"),
    ] {
        play.until(millis);
        assert_eq!(play.show(), shown, "after {millis} ms");
    }
}

#[test]
fn a_sidecar_sleeps_in_its_pre_stop_hook_while_regular_containers_stop() {
    let spec = "initContainers: [{name: side, image: s, restartPolicy: Always, lifecycle: {preStop: {sleep: {seconds: 4}}}}], \
                containers: [{name: web, image: w}]";
    for (stop, web_ends, side_ends) in [("1s", 2_100, 5_100), ("6s", 7_100, 7_100)] {
        let script = format!("web: stop {stop}");
        let mut play = check(&script, spec, &[(1_000, "Running side=ready web=ready")]);
        play.delete(30);
        play.until(1_001);
        let told = play.told.join("\n");
        assert!(told.contains("Killing: Stopping container side"), "{told}");
        play.until(web_ends - 200);
        assert_eq!(play.show(), "Running side=ready web=ready");
        play.until(side_ends - 200);
        assert!(play.show().contains("side=ready"), "{}", play.show());
        play.until(side_ends);
        assert_eq!(play.show(), "Failed side=Error:143 web=Error:143");
    }
}

#[test]
fn a_sidecar_whose_turn_does_not_come_has_two_seconds() {
    let spec = "initContainers: [{name: side, image: s, restartPolicy: Always}], containers: [{name: web, image: w}]";
    let script = "web: stop never; side: stop 1s";
    let mut play = check(script, spec, &[(1_000, "Running side=ready web=ready")]);
    play.delete(5);
    play.until(6_500);
    assert_eq!(play.show(), "Running side=ready web=Error:137");
    play.until(7_100);
    assert_eq!(play.show(), "Failed side=Error:143 web=Error:137");
}

#[test]
fn the_containers_of_a_pod_share_the_room_for_termination_messages() {
    let containers =
        "[{name: a, image: a}, {name: b, image: b}, {name: c, image: c}, {name: d, image: d}]";
    let spec = format!("restartPolicy: Never, containers: {containers}");
    let mut play = check(
        "exit",
        &spec,
        &[(
            1_000,
            "Succeeded a=Completed:0 b=Completed:0 c=Completed:0 d=Completed:0",
        )],
    );
    for container in &mut play.pod.containers {
        let Some(ContainerPhase::Ended(end)) = &mut container.state else {
            panic!("it has ended");
        };
        // Two bytes for each character.
        end.message = "é".repeat(2_000).into();
    }
    play.write();
    let message = |at: usize| {
        let status = &play.object.at("status.containerStatuses")[at];
        status["state"]["terminated"]["message"].str().len()
    };
    assert_eq!([message(0), message(3)], [3_072; 2]);
}

#[test]
fn a_pod_that_is_deleted_before_it_runs_fails() {
    let mut play = check("start 1h", WEB, &[(1_000, "Pending web=ContainerCreating")]);
    play.delete(30);
    play.until(1_100);
    assert_eq!(play.show(), "Failed web=ContainerStatusUnknown:137");
}

#[test]
fn a_pod_fails_at_its_active_deadline() {
    let spec = format!("activeDeadlineSeconds: 5, {WEB}");
    let expected = [
        (4_900, "Running web=ready"),
        (5_000, "Failed(DeadlineExceeded) web=Error:143"),
    ];
    let play = check("", &spec, &expected);
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(play.object.at("status.message").str(), message);
    assert!(play.told.contains(&format!("DeadlineExceeded: {message}")));
}

const PROBE: &str =
    "periodSeconds: 2, failureThreshold: 2, successThreshold: 1, httpGet: {port: 80}";

#[test]
fn readiness_follows_its_probe() {
    let spec = format!(
        "containers: [{{name: web, image: web, readinessProbe: {{initialDelaySeconds: 1, {PROBE}}}}}]"
    );
    let expected = [
        (500, "Running web=unready"),
        (1_100, "Running web=unready"),
        (5_100, "Running web=ready"),
        (11_100, "Running web=ready"),
        (13_100, "Running web=ready"),
        (15_100, "Running web=unready"),
    ];
    let play = check("ready 4s, unready 8s", &spec, &expected);
    assert_eq!(
        play.condition("ContainersReady"),
        "False ContainersNotReady containers with unready status: [web]"
    );
    let said = "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503";
    assert!(play.told.contains(&said.into()), "{:?}", play.told);
}

#[test]
fn a_container_that_fails_its_liveness_probe_is_restarted() {
    let spec = format!("containers: [{{name: web, image: web, livenessProbe: {{{PROBE}}}}}]");
    let expected = [
        (6_000, "Running web=ready"),
        (8_500, "Running web=ready+1"),
        (3_600_000, "Running web=ready+1"),
    ];
    let play = check("unhealthy 5s then run", &spec, &expected);
    assert!(
        play.told
            .contains(&"Killing: Container web failed liveness probe, will be restarted".into())
    );
    let failures = play
        .told
        .iter()
        .filter(|told| told.starts_with("Unhealthy: Liveness probe failed"));
    assert_eq!(failures.count(), 2);
}

#[test]
fn an_http_probe_uses_the_simulated_pages() {
    let probe = "periodSeconds: 2, failureThreshold: 2, httpGet: {port: web, path: '/ready?x'}";
    let spec = format!(
        "containers: [{{name: web, image: web, ports: [{{name: web, containerPort: 80}}], readinessProbe: {{{probe}}}}}]"
    );
    let site = |pages: &str| {
        let mut play = Play::annotated("mizzen.dev/http", pages, &spec);
        play.until(10_000);
        play
    };
    for pages in [
        "/ready: ok",
        "/ready: {status: 302, headers: {Location: /there}}\n/there: ok",
        "/ready: {status: 302, headers: {Location: 'https://example.com/'}}",
    ] {
        assert_eq!(site(pages).show(), "Running web=ready", "{pages}");
    }
    for (pages, said) in [
        (
            "/ready: {status: 500}",
            "HTTP probe failed with statuscode: 500",
        ),
        ("/other: ok", "HTTP probe failed with statuscode: 404"),
        (
            "/ready: {status: 302, headers: {Location: /ready}}",
            "Get \"http://10.0.0.9:80/ready\": stopped after 10 redirects",
        ),
    ] {
        let play = site(pages);
        assert_eq!(play.show(), "Running web=unready", "{pages}");
        let said = format!("Unhealthy: Readiness probe failed: {said}");
        assert!(play.told.contains(&said), "{:?}", play.told);
    }
    // The annotation does not apply to other ports and hosts.
    for other in ["{port: 81}", "{port: 80, host: 10.9.9.9}"] {
        let spec = format!(
            "containers: [{{name: web, image: web, ports: [{{containerPort: 80}}], readinessProbe: {{httpGet: {other}}}}}]"
        );
        let mut play = Play::annotated("mizzen.dev/http.80", "/: {status: 500}", &spec);
        play.until(1_000);
        assert_eq!(play.show(), "Running web=ready", "{other}");
    }
}

#[test]
fn an_http_probe_follows_a_changed_annotation() {
    let spec = format!(
        "containers: [{{name: web, image: web, livenessProbe: {{{PROBE}}}, readinessProbe: {{{PROBE}}}}}]"
    );
    let mut play = Play::annotated("mizzen.dev/http", "hello", &spec);
    play.until(3_600_000);
    assert_eq!(play.show(), "Running web=ready");
    let set = |play: &mut Play, name: &str, text: &str| {
        let metadata = play.object.entry("metadata");
        metadata.entry("annotations").set(name, text);
    };
    set(&mut play, "mizzen.dev/http", "/: {status: 503}");
    play.until(3_600_100);
    assert_eq!(
        play.show(),
        "Running web=ready",
        "one failure is not enough"
    );
    play.until(3_602_050);
    let failures = play
        .told
        .iter()
        .filter(|told| told.starts_with("Unhealthy: Liveness"));
    assert_eq!(failures.count(), 2);
    play.until(3_603_000);
    assert_eq!(play.show(), "Running web=unready+1");
    // The script takes precedence for the probes that it covers.
    let mut play = Play::annotated("mizzen.dev/http", "/: {status: 503}", &spec);
    set(&mut play, "mizzen.dev/simulate", "ready 1s, healthy");
    play.pod = PodState::new(&play.object, play.now, &Simulated);
    play.until(10_000);
    assert_eq!(play.show(), "Running web=ready");
}

#[test]
fn an_exec_probe_runs_in_the_simulated_shell() {
    let spec = |command: &str| {
        format!(
            "containers: [{{name: web, image: web, env: [{{name: A, value: b}}], \
             readinessProbe: {{periodSeconds: 2, failureThreshold: 1, timeoutSeconds: 1, exec: {{command: {command}}}}}}}]"
        )
    };
    for (command, expected) in [
        ("[\"true\"]", "Running web=ready"),
        (
            "[sh, -c, '[ $A = b ] && [ $(A) = b ]']",
            "Running web=ready",
        ),
        ("[pg_isready]", "Running web=ready"),
        ("[sh, -c, 'pg_isready | cat']", "Running web=ready"),
        ("[\"false\"]", "Running web=unready"),
    ] {
        let mut play = Play::new("", &spec(command));
        play.until(5_000);
        assert_eq!(play.show(), expected, "{command}");
    }
    for (command, said) in [
        ("[sh, -c, 'echo not yet; exit 1']", "not yet\n"),
        (
            "[sleep, '2']",
            "command timed out: \"sleep 2\" timed out after 1s",
        ),
    ] {
        let mut play = Play::new("", &spec(command));
        play.until(5_000);
        assert_eq!(play.show(), "Running web=unready", "{command}");
        let said = format!("Unhealthy: Readiness probe failed: {said}");
        assert!(play.told.contains(&said), "{:?}", play.told);
    }
    // A result that depends on time is probed again.
    let since = "[sh, -c, '[ $(date +%s) -lt 1700000007 ]']";
    let mut play = Play::new("", &spec(since));
    play.until(6_500);
    assert_eq!(play.show(), "Running web=ready");
    play.until(8_500);
    assert_eq!(play.show(), "Running web=unready");
}

#[test]
fn a_container_that_fails_its_startup_probe_is_restarted() {
    let spec = format!("containers: [{{name: web, image: web, startupProbe: {{{PROBE}}}}}]");
    let expected = [
        (1_000, "Running web=unstarted"),
        (2_500, "Running web=ready+1"),
    ];
    let play = check("ready 1m then run", &spec, &expected);
    assert!(
        play.told
            .contains(&"Killing: Container web failed startup probe, will be restarted".into())
    );
}

impl Play {
    fn set_image(&mut self, list: &str, at: usize, image: &str) {
        self.object.entry("spec").entry(list).list_mut()[at].set("image", image);
    }

    fn images(&self) -> String {
        let lists = ["initContainerStatuses", "containerStatuses"];
        let statuses = lists
            .iter()
            .flat_map(|list| self.object["status"][*list].list());
        let shown = |status: &Value| {
            let (image, id) = (status["image"].str(), status["imageID"].str());
            assert!(
                id.is_empty() || id.split_once('@').unwrap().0 == image.split_once(':').unwrap().0,
                "{id}"
            );
            image.to_owned()
        };
        statuses.map(shown).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_container_whose_image_changes_is_replaced() {
    for policy in ["Always", "Never"] {
        let spec = format!(
            "restartPolicy: {policy}, containers: [{{name: web, image: \"web:1\"}}, {{name: db, image: \"db:1\"}}]"
        );
        let mut play = check(
            "web: stop 3s 0",
            &spec,
            &[(1_000, "Running db=ready web=ready")],
        );
        play.told.clear();
        play.set_image("containers", 0, "web:2");
        play.until(3_900);
        assert_eq!(
            (play.show().as_str(), play.images().as_str()),
            ("Running db=ready web=ready", "db:1 web:1")
        );
        play.until(4_100);
        assert_eq!(
            (play.show().as_str(), play.images().as_str()),
            ("Running db=ready web=ready+1", "db:1 web:2")
        );
        let last = &play.object.at("status.containerStatuses")[1]["lastState"]["terminated"];
        assert_eq!(
            (last["exitCode"].int(), last["reason"].str()),
            (0, "Completed")
        );
        let told = [
            "Killing: Container web definition changed, will be restarted",
            "Pulled: Container image \"web:2\" already present on machine and can be accessed by the pod",
            "Created: Container created",
            "Started: Container started",
        ];
        assert_eq!(play.told, told);
    }
}

#[test]
fn a_sidecar_whose_image_changes_is_replaced_and_an_init_container_is_not() {
    let spec = "initContainers: [{name: one, image: \"one:1\"}, {name: side, image: \"side:1\", restartPolicy: Always}], \
                containers: [{name: web, image: \"web:1\"}]";
    let mut play = check(
        "",
        spec,
        &[(1_000, "Running one=Completed:0 side=ready web=ready")],
    );
    play.told.clear();
    play.set_image("initContainers", 0, "one:2");
    play.set_image("initContainers", 1, "side:2");
    play.until(2_000);
    assert_eq!(
        play.show(),
        "Running one=Completed:0 side=ready+1 web=ready"
    );
    assert_eq!(play.images(), "one:1 side:2 web:1");
    assert_eq!(
        play.told[0],
        "Killing: Init container side definition changed"
    );
}

#[test]
fn another_image_resets_the_back_off_of_a_container_and_of_a_pull() {
    let spec = "containers: [{name: web, image: \"web:1\"}]";
    let mut play = check(
        "4x exit 1 then run",
        spec,
        &[(2_000, "Running web=CrashLoopBackOff+1")],
    );
    play.set_image("containers", 0, "web:2");
    // The third instance exits, and the fourth follows without back-off, as the second did.
    play.until(2_400);
    assert_eq!(play.show(), "Running web=CrashLoopBackOff+3");
    let mut play = Play::annotated("mizzen.dev/pull", "2x fail", spec);
    play.until(2_000);
    assert_eq!(play.show(), "Pending web=ImagePullBackOff");
    play.told.clear();
    play.set_image("containers", 0, "web:2");
    play.until(2_100);
    assert_eq!(play.show(), "Pending web=ErrImagePull");
    assert_eq!(play.told[0], "Pulling: Pulling image \"web:2\"");
}

#[test]
fn a_failed_pull_leaves_a_replaced_container_waiting() {
    let spec = "restartPolicy: Never, containers: [{name: web, image: \"web:1\"}]";
    let mut play = Play::new("", spec);
    play.until(1_000);
    play.object
        .entry("metadata")
        .entry("annotations")
        .set("mizzen.dev/pull", "1x fail");
    play.set_image("containers", 0, "web:2");
    play.until(1_100);
    assert_eq!(play.show(), "Running web=ErrImagePull");
    let last = &play.object.at("status.containerStatuses")[0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"].int(), 143);
    play.until(20_000);
    assert_eq!(
        (play.show().as_str(), play.images().as_str()),
        ("Running web=ready+1", "web:2")
    );
}

#[test]
fn an_image_change_during_an_agent_restart_is_applied() {
    let spec = "containers: [{name: web, image: \"web:1\"}]";
    let mut play = check("", spec, &[(1_000, "Running web=ready")]);
    play.set_image("containers", 0, "web:2");
    play.pod = PodState::new(&play.object, play.now, &Simulated);
    play.until(2_000);
    assert_eq!(
        (play.show().as_str(), play.images().as_str()),
        ("Running web=ready+1", "web:2")
    );
}

#[test]
fn a_resize_does_not_restart_a_container() {
    let spec = "containers: [{name: web, image: \"web:1\", resources: {requests: {cpu: 100m}}}]";
    let mut play = check("", spec, &[(1_000, "Running web=ready")]);
    let more = value!({ "requests": { "cpu": "200m" } });
    play.object.entry("spec").entry("containers").list_mut()[0].set("resources", more);
    play.until(2_000);
    assert_eq!(play.show(), "Running web=ready");
}

#[test]
fn a_pod_waits_for_its_readiness_gates() {
    let mut play = Play::new(
        "",
        &format!("readinessGates: [{{conditionType: acme.com/up}}], {WEB}"),
    );
    play.until(100);
    let missing = "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"acme.com/up\" does not exist.";
    assert_eq!(play.condition("Ready"), missing);
    assert_eq!(play.condition("ContainersReady"), "True");
    let up = value!({ "type": "acme.com/up", "status": "True" });
    play.object
        .entry("status")
        .entry("conditions")
        .make_list()
        .push(up);
    play.until(200);
    assert_eq!(play.condition("Ready"), "True");
    assert_eq!(
        play.object.at("status.conditions")[0]["type"].str(),
        "acme.com/up"
    );
}

#[test]
fn an_ephemeral_container_is_started_when_it_is_added() {
    let mut play = check("", WEB, &[(100, "Running web=ready")]);
    let debug = value!({ "name": "debug", "image": "sh" });
    play.object
        .entry("spec")
        .set("ephemeralContainers", vec![debug]);
    play.until(200);
    assert_eq!(play.show(), "Running web=ready debug=ready");
}

#[test]
fn an_ephemeral_container_does_not_wait_for_an_init_container() {
    let spec = "initContainers: [{name: stuck, image: i}], containers: [{name: web, image: web}]";
    let expected = [(100, "Pending stuck=unready web=PodInitializing")];
    let mut play = check("stuck: run 60m, exit", spec, &expected);
    let debug = value!({ "name": "debug", "image": "sh" });
    play.object
        .entry("spec")
        .set("ephemeralContainers", vec![debug]);
    play.until(200);
    assert_eq!(
        play.show(),
        "Pending stuck=unready web=PodInitializing debug=ready"
    );
}

#[test]
fn a_pod_continues_after_a_restart_of_the_agent() {
    let mut play = check(
        "2x run 1s, exit 1 then ready 3s",
        WEB,
        &[(12_200, "Running web=unready+2")],
    );
    let before = play.object.clone();
    play.pod = PodState::new(&play.object, play.now, &Simulated);
    play.until(12_300);
    assert_eq!(
        json::to_string(&play.object["status"]),
        json::to_string(&before["status"])
    );
    play.until(16_000);
    assert_eq!(play.show(), "Running web=ready+2");
}

#[test]
fn a_terminated_pod_stays_so_after_a_restart_of_the_agent() {
    let spec = format!("restartPolicy: Never, {WEB}");
    let mut play = check("exit 1", &spec, &[(10, "Failed web=Error:1")]);
    play.pod = PodState::new(&play.object, play.now, &Simulated);
    play.until(60_000);
    assert_eq!(
        (play.show().as_str(), play.pod.stage),
        ("Failed web=Error:1", PodStage::Finished)
    );
}

#[test]
fn a_pod_that_another_client_fails_is_stopped() {
    let mut play = check("", WEB, &[(100, "Running web=ready")]);
    play.object.entry("status").set("phase", "Failed");
    play.object.entry("status").set("reason", "Evicted");
    play.until(200);
    assert_eq!(play.show(), "Failed(Evicted) web=Error:143");
}

#[test]
fn the_whole_status_is_as_a_kubelet_writes_it() {
    let spec = "containers: [{name: web, image: \"web:1\", resources: {requests: {cpu: 100m}}, \
                volumeMounts: [{name: v, mountPath: /v, readOnly: true}]}]";
    let mut play = Play::new("", spec);
    play.until(1_000);
    let mut status = play.object["status"].clone();
    status.remove("conditions");
    let container = &mut status.entry("containerStatuses").list_mut()[0];
    let image = container.remove("imageID").unwrap();
    assert!(image.str().starts_with("web@sha256:") && image.str().len() == 75);
    let id = container.remove("containerID").unwrap();
    assert!(id.str().starts_with("simulated://") && id.str().len() == 76);
    let expected = r#"{"allocatedResources":{"cpu":"100m"},"containerStatuses":[{"allocatedResources":{"cpu":"100m"},"image":"web:1","lastState":{},"name":"web","ready":true,"resources":{"requests":{"cpu":"100m"}},"restartCount":0,"started":true,"state":{"running":{"startedAt":"2023-11-14T22:13:20Z"}},"user":{"linux":{"gid":0,"supplementalGroups":[0],"uid":0}},"volumeMounts":[{"mountPath":"/v","name":"v","readOnly":true,"recursiveReadOnly":"Disabled"}]}],"hostIP":"127.0.0.1","hostIPs":[{"ip":"127.0.0.1"}],"observedGeneration":1,"phase":"Running","podIP":"10.0.0.9","podIPs":[{"ip":"10.0.0.9"}],"resources":{"requests":{"cpu":"100m"}},"startTime":"2023-11-14T22:13:20Z"}"#;
    sort(&mut status);
    assert_eq!(json::to_string(&status), expected);
}

#[test]
fn the_address_of_a_new_sandbox_replaces_the_old_one() {
    let mut play = Play::new("", WEB);
    play.until(1_000);
    let host = Host {
        address: "127.0.0.1".into(),
        scheme: "simulated".into(),
        recursive_read_only: false,
    };
    play.pod.addresses = "10.0.0.10".into();
    let patch = |play: &Play| status::patch(&play.pod, &play.object, &host, play.now);
    assert_eq!(
        patch(&play),
        None,
        "a simulated pod keeps what its status has"
    );
    play.pod.has_sandbox = Some(true);
    let status = &patch(&play).unwrap()["status"];
    assert_eq!(status["podIP"].str(), "10.0.0.10");
    assert_eq!(
        json::to_string(&status["podIPs"]),
        r#"[{"ip":"10.0.0.10"},{"ip":"10.0.0.9","$patch":"delete"}]"#
    );
    let mut view = play.object.clone();
    status::apply(&play.pod, &mut view, &host, play.now);
    assert_eq!(
        json::to_string(&view["status"]["podIPs"]),
        r#"[{"ip":"10.0.0.10"}]"#
    );
    play.object.entry("spec").set("hostNetwork", true);
    assert_eq!(patch(&play), None, "it stays on the host network");
}

fn sort(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.sort();
            map.values_mut().for_each(sort);
        }
        Value::List(list) => list.iter_mut().for_each(sort),
        _ => {}
    }
}

#[test]
fn a_failed_pull_is_retried_with_exponential_back_off() {
    let web = "containers: [{name: web, image: web}]";
    let mut play = Play::annotated("mizzen.dev/pull", r#"2x fail "no such image""#, web);
    let mut waits = |millis: u64| {
        play.until(millis);
        let state = &play.object["status"]["containerStatuses"][0]["state"];
        let waiting = &state["waiting"];
        match state["running"].is_null() {
            true => format!("{}: {}", waiting["reason"].str(), waiting["message"].str()),
            false => "running".into(),
        }
    };
    let back_off = "ImagePullBackOff: Back-off pulling image \"web\": ErrImagePull: no such image";
    assert_eq!(waits(999), "ErrImagePull: no such image");
    assert_eq!(waits(1_000), back_off);
    assert_eq!(waits(9_999), back_off);
    assert_eq!(waits(10_500), "ErrImagePull: no such image");
    assert_eq!(waits(29_999), back_off);
    assert_eq!(waits(30_100), "running");
    let told = play.told.join("\n");
    assert_eq!(
        told.matches("Failed: Failed to pull image \"web\": no such image")
            .count(),
        2,
        "{told}"
    );
    for once_more in [
        "Pulling: Pulling image \"web\"",
        "BackOff: Back-off pulling image \"web\"",
        "Failed: Error: ImagePullBackOff",
    ] {
        assert_eq!(told.matches(once_more).count(), 2, "{told}");
    }
}

#[test]
fn a_pod_can_be_deleted_during_image_pull_back_off() {
    let mut play = Play::annotated(
        "mizzen.dev/pull",
        "fail",
        "containers: [{name: web, image: web}]",
    );
    play.until(2_000);
    play.object
        .entry("metadata")
        .set("deletionTimestamp", "2023-11-14T22:13:32Z");
    play.until(2_100);
    assert_eq!(play.pod.stage, PodStage::Finished);
}
