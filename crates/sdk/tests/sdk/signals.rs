//! Signals: SIGTERM and SIGINT end a manager in order, in a process of its own.

#![cfg(unix)]

use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::User;
use mizzen_sdk::election;
use mizzen_sdk::manager::{Manager, Stop, Task, TaskError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Set in the process that runs the manager: whether its tasks end when they should.
const ROLE: &str = "MIZZEN_SDK_SIGNALS";

/// The operator: this test is nothing without [`ROLE`], and is started by the others.
#[tokio::test]
async fn the_operator_of_the_other_tests() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let server = mizzen_controlplane::in_memory().await;
    let client = Client::new(server.in_process(User::master("alice"), "test"), "default");
    let options = election::Options::new("one");
    let mut manager = Manager::new(client).leader_election("default", "operator", options);
    manager.add_task(task("everywhere").on_every_replica());
    manager.add_task(task("leader"));
    if role == "stubborn" {
        let stubborn = async |_: Stop| -> Result<(), TaskError> { std::future::pending().await };
        manager.add_task(Task::new("stubborn", stubborn));
    }
    manager.run_until_signal().await.unwrap();
    println!("ended");
}

fn task(name: &'static str) -> Task {
    Task::new(name, async move |stop: Stop| {
        println!("{name} runs");
        stop.requested().await;
        println!("{name} ends");
        Ok(())
    })
}

/// A process with the manager, and the lines that it prints.
struct Operator {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Operator {
    /// Starts a process, and waits until its tasks run.
    async fn start(role: &str) -> Operator {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "signals::the_operator_of_the_other_tests",
                "--nocapture",
            ])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut operator = Operator { process, lines };
        operator.expect("everywhere runs").await;
        operator.expect("leader runs").await;
        operator
    }

    /// Waits for a line. The test harness of the process prints others.
    async fn expect(&mut self, expected: &str) {
        while let Some(line) = self.lines.next_line().await.unwrap() {
            if line.ends_with(expected) {
                return;
            }
            let is_ours = ["runs", "ends", "ended"]
                .iter()
                .any(|end| line.ends_with(end));
            assert!(!is_ours, "{line:?} came before {expected:?}");
        }
        panic!("the process ended before {expected:?}");
    }

    fn send(&self, signal: Signal) {
        let id = i32::try_from(self.process.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }
}

#[tokio::test]
async fn a_signal_ends_the_manager_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut operator = Operator::start("obedient").await;
        operator.send(signal);
        operator.expect("leader ends").await;
        operator.expect("everywhere ends").await;
        operator.expect("ended").await;
        let status = operator.process.wait().await.unwrap();
        assert!(status.success(), "{signal}: {status}");
    }
}

#[tokio::test]
async fn a_second_signal_ends_the_process_at_once() {
    let mut operator = Operator::start("stubborn").await;
    operator.send(Signal::SIGTERM);
    operator.expect("leader ends").await;
    operator.send(Signal::SIGTERM);
    // The grace period of 30 s would be longer.
    let ended = tokio::time::timeout(Duration::from_secs(20), operator.process.wait());
    assert_eq!(ended.await.unwrap().unwrap().code(), Some(1));
}
