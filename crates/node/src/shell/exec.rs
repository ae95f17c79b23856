//! A process: the command of a container, or one that a client executes in it, with stdin and two
//! outputs.
//!
//! What a process does is a function of its input and of the time that has passed. So it is
//! evaluated from its beginning whenever there is new input or time has passed, and it prints the
//! same again.

use std::time::Duration;

use super::parse::ShellScript;
use super::run::{Halt, Shell, Step};
use super::{ContainerEnvironment, ShellLimits, is_command_option, is_shell, parse};

/// The most output of a process that is recorded.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// What a process runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShellProgram {
    /// A command, or the text of `sh -c`.
    Script(ShellScript),
    /// A shell that reads commands.
    Interactive,
    /// A shell that prints an error and exits.
    Failing { message: String, code: i64 },
}

/// The input of a client, with times after the start.
pub(crate) type Input = Vec<(Duration, Typed)>;

/// One piece of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Data(Vec<u8>),
    /// Control-C.
    Interrupt,
    /// The end of the input.
    End,
}

/// The output that a command writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Stdout,
    Stderr,
}

/// The streams of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessIo<'a> {
    /// The input; without it stdin is empty and ends at once.
    pub input: Option<&'a Input>,
    /// The echo of the terminal, with times, if it is printed with the output.
    pub echo: &'a [(Duration, String)],
    /// Whether the process has a terminal.
    pub tty: bool,
    /// Whether a client executes it. An unknown program is then one that the image lacks; in a
    /// container's own process its behaviour is unknown.
    pub is_exec: bool,
    /// The time after the start from which output is recorded; `None` if only lines are needed.
    pub records_from: Option<Duration>,
}

/// The state of a process at some moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProgramProgress {
    /// The recorded output, in order.
    pub output: Vec<(Descriptor, String)>,
    /// The latest lines of both outputs, with times after the start.
    pub lines: Vec<(Duration, String)>,
    pub state: ProgramState,
    /// The time since its start, up to its end if it has ended.
    pub clock: Duration,
}

/// The state of a command at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramState {
    Exited(i64),
    /// Until some time after the start.
    Sleeping(Duration),
    /// It waits for input.
    Reading,
    /// It exceeded the step limit.
    Exhausted,
    /// It reached an unknown command.
    Unknown,
}

impl ShellProgram {
    /// Parses `command` and `args` of a container; `None` if the program is not known.
    pub(crate) fn container_status(words: &[String]) -> Option<ShellProgram> {
        let (program, arguments) = words.split_first()?;
        let is_option =
            |argument: &String| argument.starts_with('-') && !is_command_option(argument);
        if is_shell(program) && arguments.iter().all(is_option) {
            return Some(ShellProgram::Interactive);
        }
        parse(words).map(ShellProgram::Script)
    }

    /// Parses the command of a client; `None` if the program is not known.
    pub(crate) fn parse(words: &[String]) -> Option<ShellProgram> {
        let (program, arguments) = words.split_first()?;
        if !is_shell(program) {
            return parse(words).map(ShellProgram::Script);
        }
        let failing = |message: String| ShellProgram::Failing { message, code: 2 };
        Some(match arguments {
            [option, rest @ ..] if is_command_option(option) => match rest.split_first() {
                None => failing("sh: -c requires an argument".into()),
                Some((text, parameters)) => match ShellScript::parse(text, parameters) {
                    Ok(script) => ShellProgram::Script(ShellScript {
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
                None => ShellProgram::Interactive,
            },
        })
    }

    /// Evaluates it within limits.
    pub(crate) fn run(
        &self,
        environment: &ContainerEnvironment,
        io: ProcessIo,
        limits: ShellLimits,
    ) -> ProgramProgress {
        let parameters = match self {
            ShellProgram::Script(script) => script.parameters.as_slice(),
            _ => &[],
        };
        let mut shell = Shell::new(environment, parameters, io, limits);
        let end = match self {
            ShellProgram::Script(script) => {
                shell.exits_on_error = script.exits_on_error;
                shell.run_node(&script.body, false)
            }
            ShellProgram::Interactive => shell.interact(),
            ShellProgram::Failing { message, code } => {
                shell.complain(message);
                Ok(*code)
            }
        };
        let state = match end {
            Ok(code) | Err(Halt::Exit(code)) => ProgramState::Exited(code),
            Err(Halt::Break(_) | Halt::Continue(_)) => ProgramState::Exited(shell.status),
            Err(Halt::Interrupt) => ProgramState::Exited(130),
            Err(Halt::Unknown) if io.is_exec => {
                shell.complain("sh: the simulated shell cannot do that");
                ProgramState::Exited(2)
            }
            Err(Halt::Unknown) => ProgramState::Unknown,
            Err(Halt::Limit) if shell.reads => ProgramState::Reading,
            Err(Halt::Limit) if shell.clock > limits.until => ProgramState::Sleeping(shell.clock),
            Err(Halt::Limit) => ProgramState::Exhausted,
        };
        shell.finish(state)
    }
}

impl Shell<'_> {
    /// Reads commands and runs them, one after the other.
    fn interact(&mut self) -> Step<i64> {
        // A typed command is one that a client executes.
        self.io.is_exec = true;
        loop {
            self.prompt("# ");
            let script = match self.read_script() {
                Ok(Some(script)) => script,
                Ok(None) => return Ok(self.status),
                Err(Halt::Interrupt) => {
                    self.status = 130;
                    continue;
                }
                Err(halt) => return Err(halt),
            };
            match self.run_node(&script.body, false) {
                Ok(_) | Err(Halt::Break(_) | Halt::Continue(_)) => {}
                Err(Halt::Exit(code)) => return Ok(code),
                Err(Halt::Interrupt) => self.status = 130,
                Err(Halt::Unknown) => {
                    self.complain("sh: the simulated shell cannot do that");
                    self.status = 2;
                }
                Err(Halt::Limit) => return Err(Halt::Limit),
            }
        }
    }

    /// The next command, which may have several lines; `None` at the end of the input.
    fn read_script(&mut self) -> Step<Option<ShellScript>> {
        let mut text = String::new();
        while let Some(line) = self.read_line()? {
            self.step()?;
            text.push_str(&line);
            match ShellScript::parse(&text, &[]) {
                Ok(script) => return Ok(Some(script)),
                Err(error) if error.is_incomplete() => self.prompt("> "),
                Err(error) => {
                    self.complain(&format!("sh: syntax error: {error}"));
                    self.status = 2;
                    self.prompt("# ");
                    text.clear();
                }
            }
        }
        if !text.is_empty() {
            self.complain("sh: syntax error: unexpected end of file");
            self.status = 2;
        }
        Ok(None)
    }

    fn prompt(&mut self, text: &str) {
        if self.io.tty {
            self.emit(Descriptor::Stderr, text);
        }
    }

    /// The next line of the input with its line break, if it has one; `None` at the end.
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

    /// When an interrupt arrives between `from` and `to`. Input before it is discarded, as a
    /// terminal does.
    pub(super) fn interrupted(&mut self, from: Duration, to: Duration) -> Option<Duration> {
        let later = self.io.input?.iter().enumerate().skip(self.event);
        let mut interrupts = later.filter(|(_, (_, typed))| *typed == Typed::Interrupt);
        let (event, (at, _)) = interrupts.find(|(_, (at, _))| (from..=to).contains(at))?;
        (self.event, self.offset) = (event + 1, 0);
        Some(*at)
    }

    /// Prints text to an output now, after the echo until then.
    pub(super) fn emit(&mut self, descriptor: Descriptor, text: &str) {
        self.echo(self.clock);
        self.write(self.clock, descriptor, text);
    }

    /// Prints the echo up to `until`.
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

    fn finish(mut self, state: ProgramState) -> ProgramProgress {
        let has_ended = matches!(state, ProgramState::Exited(_));
        self.echo(if has_ended {
            self.clock
        } else {
            self.limits.until
        });
        // A prompt is not a line yet.
        if !self.line.is_empty() && state != ProgramState::Reading {
            self.write_lines(self.clock, "\n");
        }
        ProgramProgress {
            output: self.output,
            lines: self.lines.into(),
            state,
            clock: self.clock,
        }
    }
}
