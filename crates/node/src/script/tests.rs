//! Scripts, and what they parse to.

use std::fmt::Write as _;

use mizzen_value::json;

use super::*;
use crate::pod::inputs::{NO_INPUTS, NodeContext};

/// A script in one line per run, or the error.
fn show(text: &str) -> String {
    let script = match parse(text) {
        Ok(script) => script,
        Err(problem) => return problem,
    };
    let mut shown = Vec::new();
    for clause in &script.clauses {
        for (times, run) in &clause.runs {
            shown.push(format!(
                "{} {times}x{}",
                clause.container.as_deref().unwrap_or("*"),
                show_run(run)
            ));
        }
    }
    shown.join(" | ")
}

fn show_run(run: &ScriptRun) -> String {
    let mut shown = format!(" start@{:?}", run.start);
    for (at, change) in &run.changes {
        let _ = match change {
            ScriptChange::Exit(Exit {
                code,
                reason,
                message,
            }) => {
                write!(shown, " exit({code},{reason},{message})@{at:?}")
            }
            change => write!(shown, " {change:?}@{at:?}"),
        };
    }
    if run.stop != StopBehavior::default() {
        let _ = write!(shown, " stop({:?},{})", run.stop.takes, run.stop.code);
    }
    shown
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(show(text), expected, "{text}");
}

#[test]
fn stages_follow_one_another() {
    check(
        "web: start 2s, ready 1s, run 30s, exit 1",
        "web 1x start@2s Ready@1s exit(1,,)@31s",
    );
    check(
        "unready 5s, ready 1m30s",
        "* 1x start@0ns Unready@5s Ready@95s",
    );
    check("run", "* 1x start@0ns");
    check("", "");
    check(" ; ;", "");
}

#[test]
fn each_container_has_its_clause() {
    check(
        "a: exit; b: run 1s, exit 3; run",
        "a 1x start@0ns exit(0,,)@0ns | b 1x start@0ns exit(3,,)@1s | * 1x start@0ns",
    );
    check(
        "a: run; a: run",
        r#"there are two clauses for container "a""#,
    );
    check("run; run", "there are two clauses without a container");
}

#[test]
fn a_restarted_container_takes_the_next_run() {
    check(
        "3x run 1s, exit 1, then ready",
        "* 3x start@0ns exit(1,,)@1s | * 1x start@0ns Ready@0ns",
    );
    check(
        "exit 1 then exit then run",
        "* 1x start@0ns exit(1,,)@0ns | * 1x start@0ns exit(0,,)@0ns | * 1x start@0ns",
    );
}

#[test]
fn an_end_has_a_code_a_reason_and_a_message() {
    check(
        r#"exit 137 OOMKilled "too; much, then""#,
        "* 1x start@0ns exit(137,OOMKilled,too; much, then)@0ns",
    );
    check(r#"exit "bye""#, "* 1x start@0ns exit(0,,bye)@0ns");
}

#[test]
fn a_container_stops_in_its_own_way() {
    check("stop 5s 0, run", "* 1x start@0ns stop(Some(5s),0)");
    check("run, stop never", "* 1x start@0ns stop(None,137)");
    check("stop never, stop 1s", r#""stop" is said twice"#);
    check(
        "stop 1s then stop 2s",
        "* 1x start@0ns stop(Some(1s),143) | * 1x start@0ns stop(Some(2s),143)",
    );
}

#[test]
fn errors_name_the_problem() {
    check(
        "web: rdy 1s",
        "\"rdy\" is not a stage (start, ready, unready, healthy, unhealthy, run, exit, stop)",
    );
    check(
        "ready soon",
        "\"soon\" is not a duration such as 500ms or 1m30s",
    );
    check(
        "ready -1s",
        "\"-1s\" is not a duration such as 500ms or 1m30s",
    );
    check("exit 256", "\"256\" is not an exit code from 0 to 255");
    check("exit 1, run 5s", "\"run\" comes after \"exit\"");
    check("run, exit 1", "\"exit\" comes after a run without end");
    check("ready, start 1s", "\"start\" is not the first stage");
    check(
        "web:",
        "expected a stage (start, ready, unready, healthy, unhealthy, run, exit, stop) at the end",
    );
    check("ready 1s 2s", "did not expect \"2s\"");
    check("exit \"x", "a quotation is not closed");
    check("0x run", "\"0x\" is not how often something can happen");
    check(&"run ".repeat(5000), "it is longer than 16384 bytes");
}

fn pod(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_clause_for_an_unknown_container_is_rejected() {
    let pod = pod(
        r#"{"metadata":{"annotations":{"mizzen.dev/simulate":"db: run"}},"spec":{"containers":[{"name":"web"}]}}"#,
    );
    assert_eq!(
        SimulationScript::from_pod(&pod),
        Err("mizzen.dev/simulate: the pod has no container \"db\"".into())
    );
}

/// The run of a container after some restarts.
fn run(script: &SimulationScript, pod: &Value, role: ContainerRole, n_restarts: u32) -> String {
    let container = json::parse(br#"{"name":"a"}"#).unwrap();
    let (inputs, node) = (&NO_INPUTS, NodeContext::NONE);
    let config = ContainerConfig {
        pod,
        container: &container,
        role,
        n_restarts,
        since: None,
        inputs,
        node,
    };
    show_run(&script.run(&config, Moment::default()))
}

#[test]
fn containers_of_jobs_complete_and_all_other_run() {
    let job = pod(r#"{"metadata":{"ownerReferences":[{"kind":"Job","controller":true}]}}"#);
    let bare = pod("{}");
    let script = SimulationScript::default();
    assert_eq!(
        run(&script, &job, ContainerRole::Regular, 0),
        " start@0ns exit(0,,)@1s"
    );
    assert_eq!(run(&script, &bare, ContainerRole::Regular, 0), " start@0ns");
    assert_eq!(
        run(&script, &bare, ContainerRole::Init, 0),
        " start@0ns exit(0,,)@0ns"
    );
    assert_eq!(run(&script, &job, ContainerRole::Sidecar, 0), " start@0ns");
}

#[test]
fn runs_are_counted_by_restarts() {
    let script = parse("2x exit 1 then exit 2 then run").unwrap();
    let bare = pod("{}");
    let shown: Vec<String> = (0..5)
        .map(|n| run(&script, &bare, ContainerRole::Regular, n))
        .collect();
    let (one, two, run) = (
        " start@0ns exit(1,,)@0ns",
        " start@0ns exit(2,,)@0ns",
        " start@0ns",
    );
    assert_eq!(shown, [one, one, two, run, run]);
}
