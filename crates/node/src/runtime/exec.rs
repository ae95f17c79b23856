//! Running a command in a simulated container.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::exec_script::ExecScript;
use super::terminal::{Terminal, Typing, cooked};
use super::{ContainerEnvironment, Exec, Stdio};
use crate::shell::{Descriptor, ProcessIo, ProgramState, ShellLimits, ShellProgram, Typed};

/// The most steps of one evaluation: a long command is evaluated often.
const STEPS: u32 = 200_000;

/// Runs a command and returns its exit code.
pub(super) async fn run(exec: Exec, mut stdio: Stdio) -> Result<i64, String> {
    let script = ExecScript::of_container(&exec.pod, &exec.container);
    // An annotation that has become invalid has no answers.
    if let Some(answer) = script.unwrap_or_default().find(&exec.command) {
        sleep(answer.after).await;
        let outputs = [
            (&stdio.stdout, &answer.stdout),
            // A terminal has one output.
            (
                if stdio.tty {
                    &stdio.stdout
                } else {
                    &stdio.stderr
                },
                &answer.stderr,
            ),
        ];
        for (output, text) in outputs {
            let text = if stdio.tty {
                cooked(text)
            } else {
                text.clone()
            };
            send(output.as_ref(), text.into()).await;
        }
        return Ok(answer.exit);
    }
    let Some(program) = ShellProgram::parse(&exec.command) else {
        return Err(not_found(&exec));
    };
    let is_cat =
        matches!(exec.command.as_slice(), [only] if only.rsplit('/').next() == Some("cat"));
    if is_cat && !stdio.tty {
        // `cat` alone copies without limits.
        if let Some(mut stdin) = stdio.stdin.take() {
            while let Some(data) = stdin.recv().await {
                send(stdio.stdout.as_ref(), data).await;
            }
        }
        return Ok(0);
    }
    let began = (exec.now)();
    let mut environment = ContainerEnvironment {
        started: began,
        ..exec.environment.clone()
    };
    let mut terminal = stdio.tty.then(Terminal::default);
    if stdio.tty {
        environment.variables.insert("TERM".into(), "xterm".into());
    }
    let mut typing = Typing::default();
    if stdio.stdin.is_none() {
        typing.input.push((Duration::ZERO, Typed::End));
    }
    let mut n_printed = 0;
    loop {
        let elapsed = (exec.now)().saturating_since(began);
        let io = ProcessIo {
            input: Some(&typing.input),
            tty: stdio.tty,
            is_exec: true,
            records_from: Some(Duration::ZERO),
            ..ProcessIo::default()
        };
        let limits = ShellLimits {
            until: elapsed,
            steps: STEPS,
            lines: 0,
        };
        let progress = program.run(&environment, io, limits);
        for (descriptor, text) in progress.output.iter().skip(n_printed) {
            let (output, text) = match descriptor {
                // A terminal has one output.
                _ if stdio.tty => (&stdio.stdout, cooked(text)),
                Descriptor::Stdout => (&stdio.stdout, text.clone()),
                Descriptor::Stderr => (&stdio.stderr, text.clone()),
            };
            send(output.as_ref(), text.into()).await;
        }
        n_printed = progress.output.len();
        let wait = match progress.state {
            ProgramState::Exited(code) => return Ok(code),
            ProgramState::Exhausted | ProgramState::Unknown => {
                return Err("the simulated command does not end".into());
            }
            ProgramState::Sleeping(until) => Some(until.saturating_sub(elapsed)),
            ProgramState::Reading => None,
        };
        tokio::select! {
            data = stdio.read() => {
                let at = (exec.now)().saturating_since(began);
                let shown = typing.receive(at, data, terminal.as_mut())?;
                if !shown.is_empty() {
                    send(stdio.stdout.as_ref(), shown.into()).await;
                }
            }
            () = sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

/// The send fails if the client has gone; then the command is dropped, too.
async fn send(output: Option<&mpsc::Sender<Bytes>>, data: Bytes) {
    if let Some(output) = output {
        let _ = output.send(data).await;
    }
}

/// Why a program cannot be started, in the words of containerd and runc.
fn not_found(exec: &Exec) -> String {
    let Some(program) = exec.command.first() else {
        return "failed to exec in container: exec command cannot be empty".into();
    };
    let why = match program.contains('/') {
        true => format!("stat {program}: no such file or directory"),
        false => "executable file not found in $PATH".into(),
    };
    format!(
        "failed to exec in container: failed to start exec {:?}: OCI runtime exec failed: exec failed: unable to start \
         container process: exec: {program:?}: {why}",
        format!("{:064x}", crate::digest(&exec.command.join(" ")))
    )
}
