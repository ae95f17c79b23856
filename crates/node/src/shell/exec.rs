//! A command that a client executes: it has streams of its own, may read what the client types, and its errors are its own.
//!
//! What a command does is a function of what was typed and when, and of the time that has passed. So it is evaluated from its
//! beginning whenever something was typed or time has passed, and what it printed before is printed again.

use std::time::Duration;

use super::parse::Script;
use super::run::{Halt, Shell, Step};
use super::{Environment, Limits, is_command_option, is_shell, parse};

/// How much one evaluation may do: a command that goes on for hours is evaluated often.
const STEPS: u32 = 200_000;
/// How much a command may print.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// What a client executes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Program {
    /// A command, or the text of `sh -c`.
    Script(Script),
    /// A shell that reads commands.
    Interactive,
    /// A shell that complains and ends with an exit code.
    Failing { message: String, code: i64 },
}

/// What a client typed, and how long after the start.
pub(crate) type Input = Vec<(Duration, Typed)>;

/// Something that a client typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Data(Vec<u8>),
    /// Control-C.
    Interrupt,
    /// There is no more.
    End,
}

/// Where a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Stdout,
    Stderr,
}

/// What became of a command up to some moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    /// What it printed, in order.
    pub output: Vec<(Descriptor, String)>,
    /// How it is.
    pub state: State,
}

/// How a command is at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It ended with an exit code.
    Exited(i64),
    /// It sleeps until some time after the start.
    Sleeping(Duration),
    /// It waits for input.
    Reading,
    /// It did more than a simulated command may do.
    Exhausted,
}

impl Program {
    /// Reads a command and its arguments; none if nothing is known of the program.
    pub(crate) fn parse(words: &[String]) -> Option<Program> {
        let (program, arguments) = words.split_first()?;
        if !is_shell(program) {
            return parse(words).map(Program::Script);
        }
        let failing = |message: String| Program::Failing { message, code: 2 };
        Some(match arguments {
            [option, rest @ ..] if is_command_option(option) => match rest.split_first() {
                None => failing("sh: -c requires an argument".into()),
                Some((text, parameters)) => match Script::parse(text, parameters) {
                    Ok(script) => Program::Script(Script {
                        exits_on_error: option.contains('e'),
                        ..script
                    }),
                    Err(error) => failing(format!("sh: syntax error: {error}")),
                },
            },
            arguments => match arguments.iter().find(|argument| !argument.starts_with('-')) {
                Some(file) => failing(format!(
                    "sh: can't open '{file}': No such file or directory"
                )),
                None => Program::Interactive,
            },
        })
    }

    /// Evaluates it up to `until` after its start.
    pub(crate) fn run(
        &self,
        environment: &Environment,
        input: &Input,
        tty: bool,
        until: Duration,
    ) -> Progress {
        let parameters = match self {
            Program::Script(script) => script.parameters.as_slice(),
            _ => &[],
        };
        let limits = Limits {
            steps: STEPS,
            ..Limits::until(until)
        };
        let mut shell = Shell::new(environment, parameters, limits);
        shell.client = Some(Client {
            input,
            tty,
            event: 0,
            offset: 0,
            output: Vec::new(),
            size: 0,
            reads: false,
        });
        let end = match self {
            Program::Script(script) => {
                shell.exits_on_error = script.exits_on_error;
                shell.node(&script.body, false)
            }
            Program::Interactive => interact(&mut shell),
            Program::Failing { message, code } => {
                shell.complain(message);
                Ok(*code)
            }
        };
        let (clock, status) = (shell.clock, shell.status);
        let reads = shell.client.as_ref().is_some_and(|client| client.reads);
        let state = match end {
            Ok(code) | Err(Halt::Exit(code)) => State::Exited(code),
            Err(Halt::Break(_) | Halt::Continue(_)) => State::Exited(status),
            Err(Halt::Interrupt) => State::Exited(130),
            Err(Halt::Unknown) => {
                shell.complain("sh: the simulated shell cannot do that");
                State::Exited(2)
            }
            Err(Halt::Limit) if reads => State::Reading,
            Err(Halt::Limit) if clock > until => State::Sleeping(clock),
            Err(Halt::Limit) => State::Exhausted,
        };
        Progress {
            output: shell
                .client
                .take()
                .map(|client| client.output)
                .unwrap_or_default(),
            state,
        }
    }
}

/// The client of a command: what it typed, and what it was shown.
pub(super) struct Client<'a> {
    input: &'a Input,
    tty: bool,
    /// What was typed next that is not yet read, and how far into it.
    event: usize,
    offset: usize,
    output: Vec<(Descriptor, String)>,
    size: usize,
    /// Whether the command waits for input.
    reads: bool,
}

impl Client<'_> {
    /// Prints text; whether there was too much.
    pub(super) fn print(&mut self, descriptor: Descriptor, text: &str) -> bool {
        self.size += text.len();
        if !text.is_empty() && self.size <= MAX_OUTPUT {
            self.output.push((descriptor, text.to_owned()));
        }
        self.size > MAX_OUTPUT
    }

    /// When the client interrupts what takes from `from` to `to`. What was typed before that is forgotten, as a terminal does it.
    pub(super) fn interrupts(&mut self, from: Duration, to: Duration) -> Option<Duration> {
        let later = self.input.iter().enumerate().skip(self.event);
        let mut interrupts = later.filter(|(_, (_, typed))| *typed == Typed::Interrupt);
        let (event, (at, _)) = interrupts.find(|(_, (at, _))| (from..=to).contains(at))?;
        (self.event, self.offset) = (event + 1, 0);
        Some(*at)
    }
}

/// Reads commands and runs them, one after the other.
fn interact(shell: &mut Shell) -> Step<i64> {
    loop {
        shell.prompt("# ");
        let script = match read_script(shell) {
            Ok(Some(script)) => script,
            Ok(None) => return Ok(shell.status),
            Err(Halt::Interrupt) => {
                shell.status = 130;
                continue;
            }
            Err(halt) => return Err(halt),
        };
        match shell.node(&script.body, false) {
            Ok(_) | Err(Halt::Break(_) | Halt::Continue(_)) => {}
            Err(Halt::Exit(code)) => return Ok(code),
            Err(Halt::Interrupt) => shell.status = 130,
            Err(Halt::Unknown) => {
                shell.complain("sh: the simulated shell cannot do that");
                shell.status = 2;
            }
            Err(Halt::Limit) => return Err(Halt::Limit),
        }
    }
}

/// The next command, which may have several lines; none at the end of the input.
fn read_script(shell: &mut Shell) -> Step<Option<Script>> {
    let mut text = String::new();
    while let Some(line) = shell.read_line()? {
        shell.step()?;
        text.push_str(&line);
        match Script::parse(&text, &[]) {
            Ok(script) => return Ok(Some(script)),
            Err(error) if error.is_incomplete() => shell.prompt("> "),
            Err(error) => {
                shell.complain(&format!("sh: syntax error: {error}"));
                shell.status = 2;
                shell.prompt("# ");
                text.clear();
            }
        }
    }
    if !text.is_empty() {
        shell.complain("sh: syntax error: unexpected end of file");
        shell.status = 2;
    }
    Ok(None)
}

impl Shell<'_> {
    fn prompt(&mut self, text: &str) {
        if let Some(client) = self.client.as_mut().filter(|client| client.tty) {
            client.print(Descriptor::Stderr, text);
        }
    }

    /// The next line of the input with its line break, if it has one; none at its end.
    pub(super) fn read_line(&mut self) -> Step<Option<String>> {
        let (mut line, mut is_whole) = (Vec::new(), false);
        while !is_whole {
            let Some(client) = &mut self.client else {
                return Err(Halt::Unknown);
            };
            let Some((at, typed)) = client.input.get(client.event) else {
                client.reads = true;
                return Err(Halt::Limit);
            };
            self.clock = self.clock.max(*at);
            match typed {
                Typed::Data(data) => {
                    let rest = &data[client.offset..];
                    let end = rest
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .map_or(rest.len(), |end| end + 1);
                    line.extend_from_slice(&rest[..end]);
                    is_whole = rest[..end].ends_with(b"\n");
                    client.offset += end;
                    if client.offset == data.len() {
                        (client.event, client.offset) = (client.event + 1, 0);
                    }
                }
                Typed::Interrupt => {
                    (client.event, client.offset) = (client.event + 1, 0);
                    return Err(Halt::Interrupt);
                }
                Typed::End => break,
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()).filter(|line| !line.is_empty()))
    }
}
