//! A command in a simulated container: what the simulated shell makes of it, as time passes.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::terminal::{Terminal, cooked};
use super::{Environment, Exec, Stdio};
use crate::shell::{Descriptor, Input, Program, State, Typed};

/// How much a client may type; what a command prints may depend on all of it.
const MAX_INPUT: usize = 1024 * 1024;

/// Runs a command; its exit code.
pub(super) async fn run(exec: Exec, mut stdio: Stdio) -> Result<i64, String> {
    let Some(program) = Program::parse(&exec.command) else {
        return Err(not_found(&exec));
    };
    let is_cat =
        matches!(exec.command.as_slice(), [only] if only.rsplit('/').next() == Some("cat"));
    if is_cat && !stdio.tty {
        return copy(stdio).await;
    }
    let began = (exec.now)();
    let mut environment = Environment {
        started: began,
        ..exec.environment.clone()
    };
    let mut terminal = stdio.tty.then(Terminal::default);
    if stdio.tty {
        environment.variables.insert("TERM".into(), "xterm".into());
    }
    let (mut stdin, mut typing) = (stdio.stdin.take(), Typing::default());
    if stdin.is_none() {
        typing.input.push((Duration::ZERO, Typed::End));
    }
    let mut n_printed = 0;
    loop {
        let elapsed = (exec.now)().saturating_since(began);
        let progress = program.run(&environment, &typing.input, stdio.tty, elapsed);
        for (descriptor, text) in progress.output.iter().skip(n_printed) {
            print(&stdio, *descriptor, text).await;
        }
        n_printed = progress.output.len();
        let wait = match progress.state {
            State::Exited(code) => return Ok(code),
            State::Exhausted => return Err("the simulated command does not end".into()),
            State::Sleeping(until) => Some(until.saturating_sub(elapsed)),
            State::Reading => None,
        };
        tokio::select! {
            data = receive(&mut stdin) => {
                let at = (exec.now)().saturating_since(began);
                let shown = typing.receive(at, data, terminal.as_mut())?;
                if !shown.is_empty() {
                    send(stdio.stdout.as_ref(), shown.into()).await;
                }
            }
            () = pass(wait) => {}
        }
    }
}

/// What a client has typed so far.
#[derive(Default)]
struct Typing {
    input: Input,
    size: usize,
}

impl Typing {
    /// Takes what came; none is the end. What a terminal shows for it.
    fn receive(
        &mut self,
        at: Duration,
        data: Option<Bytes>,
        terminal: Option<&mut Terminal>,
    ) -> Result<Vec<u8>, String> {
        let Some(data) = data else {
            self.input.push((at, Typed::End));
            return Ok(Vec::new());
        };
        self.size += data.len();
        if self.size > MAX_INPUT {
            return Err(format!(
                "the input of a simulated command is limited to {MAX_INPUT} bytes"
            ));
        }
        let (shown, typed) = match terminal {
            Some(terminal) => terminal.keys(&data),
            None => (Vec::new(), vec![Typed::Data(data.into())]),
        };
        self.input
            .extend(typed.into_iter().map(|typed| (at, typed)));
        Ok(shown)
    }
}

/// `cat` alone: as much as the client likes.
async fn copy(stdio: Stdio) -> Result<i64, String> {
    if let Some(mut stdin) = stdio.stdin {
        while let Some(data) = stdin.recv().await {
            send(stdio.stdout.as_ref(), data).await;
        }
    }
    Ok(0)
}

/// The next that a client sends; for ever nothing once it has closed its side.
async fn receive(stdin: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    let Some(open) = stdin else {
        return std::future::pending().await;
    };
    let data = open.recv().await;
    if data.is_none() {
        *stdin = None;
    }
    data
}

async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

async fn print(stdio: &Stdio, descriptor: Descriptor, text: &str) {
    let (output, text) = match descriptor {
        // A terminal has one output.
        _ if stdio.tty => (&stdio.stdout, cooked(text)),
        Descriptor::Stdout => (&stdio.stdout, text.to_owned()),
        Descriptor::Stderr => (&stdio.stderr, text.to_owned()),
    };
    send(output.as_ref(), text.into()).await;
}

/// A client that has gone takes the command with it.
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
