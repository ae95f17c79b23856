//! A process: the command of a container, or one that a client executes in it. It may read its stdin, and has two outputs.
//!
//! What a process does is a function of what was typed and when, and of the time that has passed. So it is evaluated from its
//! beginning whenever something was typed or time has passed, and what it printed before is printed again.

use std::time::Duration;

use super::parse::Script;
use super::run::{Halt, Shell, Step};
use super::{Environment, Limits, is_command_option, is_shell, parse};

/// How much of what a process prints is recorded.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// What a process runs.
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

/// The streams of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessIo<'a> {
    /// What was typed; without it stdin is empty and ends at once.
    pub input: Option<&'a Input>,
    /// What the terminal echoes, and when, if that is printed with the output of the process.
    pub echo: &'a [(Duration, String)],
    /// Whether the process has a terminal.
    pub tty: bool,
    /// Whether a client executes it. A program that is not known is then one that the image lacks; in a container's own process
    /// it is one of which nothing is known.
    pub is_exec: bool,
    /// The time after the start from which output is recorded; none if lines alone are wanted.
    pub records_from: Option<Duration>,
}

/// What became of a process up to some moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    /// What it printed as far as that is recorded, in order.
    pub output: Vec<(Descriptor, String)>,
    /// The latest lines of both outputs, and how long after its start they were printed.
    pub lines: Vec<(Duration, String)>,
    /// How it is.
    pub state: State,
    /// The time since its start, up to its end if it has ended.
    pub clock: Duration,
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
    /// It came to a command of which nothing is known.
    Unknown,
}

impl Program {
    /// Reads `command` and `args` of a container; none if nothing is known of the program.
    pub(crate) fn of_container(words: &[String]) -> Option<Program> {
        let (program, arguments) = words.split_first()?;
        let is_option =
            |argument: &String| argument.starts_with('-') && !is_command_option(argument);
        if is_shell(program) && arguments.iter().all(is_option) {
            return Some(Program::Interactive);
        }
        parse(words).map(Program::Script)
    }

    /// Reads a command and its arguments that a client executes; none if nothing is known of the program.
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

    /// Evaluates it within limits.
    pub(crate) fn run(&self, environment: &Environment, io: ProcessIo, limits: Limits) -> Progress {
        let parameters = match self {
            Program::Script(script) => script.parameters.as_slice(),
            _ => &[],
        };
        let mut shell = Shell::new(environment, parameters, io, limits);
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
        let state = match end {
            Ok(code) | Err(Halt::Exit(code)) => State::Exited(code),
            Err(Halt::Break(_) | Halt::Continue(_)) => State::Exited(shell.status),
            Err(Halt::Interrupt) => State::Exited(130),
            Err(Halt::Unknown) if io.is_exec => {
                shell.complain("sh: the simulated shell cannot do that");
                State::Exited(2)
            }
            Err(Halt::Unknown) => State::Unknown,
            Err(Halt::Limit) if shell.reads => State::Reading,
            Err(Halt::Limit) if shell.clock > limits.until => State::Sleeping(shell.clock),
            Err(Halt::Limit) => State::Exhausted,
        };
        shell.finish(state)
    }
}

/// Reads commands and runs them, one after the other.
fn interact(shell: &mut Shell) -> Step<i64> {
    // A command that was typed is one that a client executes.
    shell.io.is_exec = true;
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
        if self.io.tty {
            self.emit(Descriptor::Stderr, text);
        }
    }

    /// The next line of the input with its line break, if it has one; none at its end.
    pub(super) fn read_line(&mut self) -> Step<Option<String>> {
        let Some(input) = self.io.input else {
            return Ok(None);
        };
        let (mut line, mut is_whole) = (Vec::new(), false);
        while !is_whole {
            let Some((at, typed)) = input.get(self.event) else {
                self.reads = true;
                return Err(Halt::Limit);
            };
            self.clock = self.clock.max(*at);
            match typed {
                Typed::Data(data) => {
                    let rest = &data[self.offset..];
                    let end = rest
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .map_or(rest.len(), |end| end + 1);
                    line.extend_from_slice(&rest[..end]);
                    is_whole = rest[..end].ends_with(b"\n");
                    self.offset += end;
                    if self.offset == data.len() {
                        (self.event, self.offset) = (self.event + 1, 0);
                    }
                }
                Typed::Interrupt => {
                    (self.event, self.offset) = (self.event + 1, 0);
                    return Err(Halt::Interrupt);
                }
                Typed::End => break,
            }
        }
        Ok(Some(String::from_utf8_lossy(&line).into_owned()).filter(|line| !line.is_empty()))
    }

    /// When what takes from `from` to `to` is interrupted. What was typed before that is forgotten, as a terminal does it.
    pub(super) fn interrupted(&mut self, from: Duration, to: Duration) -> Option<Duration> {
        let later = self.io.input?.iter().enumerate().skip(self.event);
        let mut interrupts = later.filter(|(_, (_, typed))| *typed == Typed::Interrupt);
        let (event, (at, _)) = interrupts.find(|(_, (at, _))| (from..=to).contains(at))?;
        (self.event, self.offset) = (event + 1, 0);
        Some(*at)
    }

    /// Prints text to an output at this moment, after what the terminal has echoed until then.
    pub(super) fn emit(&mut self, descriptor: Descriptor, text: &str) {
        self.echo(self.clock);
        self.write(self.clock, descriptor, text);
    }

    /// Prints what the terminal echoes up to `until`.
    fn echo(&mut self, until: Duration) {
        while let Some((at, text)) = self.io.echo.get(self.n_echoed)
            && *at <= until
        {
            self.n_echoed += 1;
            self.write(*at, Descriptor::Stdout, text);
        }
    }

    fn write(&mut self, at: Duration, descriptor: Descriptor, text: &str) {
        if self.io.records_from.is_some_and(|from| from <= at) && !text.is_empty() {
            self.size += text.len();
            if self.size <= MAX_OUTPUT {
                self.output.push((descriptor, text.to_owned()));
            } else if self.io.is_exec {
                self.exhaust();
            }
        }
        self.write_lines(at, text);
    }

    fn finish(mut self, state: State) -> Progress {
        let has_ended = matches!(state, State::Exited(_));
        self.echo(if has_ended {
            self.clock
        } else {
            self.limits.until
        });
        // A prompt is not yet a line.
        if !self.line.is_empty() && state != State::Reading {
            self.write_lines(self.clock, "\n");
        }
        Progress {
            output: self.output,
            lines: self.lines.into(),
            state,
            clock: self.clock,
        }
    }
}
