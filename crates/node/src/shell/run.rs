//! Lists, loops and conditions, on virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::exec::{Descriptor, ProcessIo};
use super::parse::{Errors, Node, Output, Word};
use super::{Environment, Limits, builtin};

/// Why a script does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// It ended with an exit code.
    Exit(i64),
    /// It leaves so many loops.
    Break(usize),
    /// It begins the next turn of the loop so many levels up.
    Continue(usize),
    /// It came to something that is not known.
    Unknown,
    /// A limit was reached: it still runs.
    Limit,
    /// Its client interrupted it.
    Interrupt,
}

pub(super) type Step<T> = Result<T, Halt>;

/// A shell between two commands.
pub(super) struct Shell<'a> {
    pub environment: &'a Environment,
    pub variables: BTreeMap<String, String>,
    pub exported: BTreeSet<String>,
    pub parameters: &'a [String],
    /// `$?`
    pub status: i64,
    pub exits_on_error: bool,
    /// Time since the start.
    pub clock: Duration,
    pub limits: Limits,
    steps: u32,
    pub lines: VecDeque<(Duration, String)>,
    /// What was printed since the last line break.
    pub line: String,
    /// Output of a substitution goes here instead.
    captured: Option<String>,
    discards: bool,
    /// Where errors of the present command go.
    errors: Errors,
    /// Whether the present command prints to stderr.
    prints_errors: bool,
    /// The streams of the process.
    pub io: ProcessIo<'a>,
    /// What was typed next that is not yet read, and how far into it.
    pub event: usize,
    pub offset: usize,
    /// Whether the process waits for input.
    pub reads: bool,
    /// How much of the echo is printed.
    pub n_echoed: usize,
    /// What is recorded of the output, and the size of all of it.
    pub output: Vec<(Descriptor, String)>,
    pub size: usize,
}

impl<'a> Shell<'a> {
    pub(super) fn new(
        environment: &'a Environment,
        parameters: &'a [String],
        io: ProcessIo<'a>,
        limits: Limits,
    ) -> Shell<'a> {
        Shell {
            environment,
            variables: environment.variables.clone(),
            exported: environment.variables.keys().cloned().collect(),
            parameters,
            status: 0,
            exits_on_error: false,
            clock: Duration::ZERO,
            limits,
            steps: 0,
            lines: VecDeque::new(),
            line: String::new(),
            captured: None,
            discards: false,
            errors: Errors::default(),
            prints_errors: false,
            io,
            event: 0,
            offset: 0,
            reads: false,
            n_echoed: 0,
            output: Vec::new(),
            size: 0,
        }
    }
}

impl Shell<'_> {
    /// Runs a part of the script; its exit code. `is_tested` says that a failure is looked at, so that it ends nothing.
    pub(super) fn node(&mut self, node: &Node, is_tested: bool) -> Step<i64> {
        self.step()?;
        let status = match node {
            Node::Command {
                assignments,
                words,
                output,
                errors,
            } => self.command(assignments, words, *output, *errors)?,
            Node::Sequence(nodes) => {
                let mut status = 0;
                for node in nodes {
                    status = self.node(node, is_tested)?;
                }
                return Ok(status);
            }
            Node::And(left, right) => match self.node(left, true)? {
                0 => return self.node(right, is_tested),
                status => return Ok(status),
            },
            Node::Or(left, right) => match self.node(left, true)? {
                0 => 0,
                _ => return self.node(right, is_tested),
            },
            Node::Not(inner) => {
                let status = self.node(inner, true)?;
                return Ok(self.set_status(i64::from(status == 0)));
            }
            Node::If(branches, otherwise) => {
                return self.conditional(branches, otherwise.as_deref(), is_tested);
            }
            Node::Loop {
                until,
                condition,
                body,
            } => return self.turns(*until, condition, body),
            Node::For { name, words, body } => return self.each(name, words, body),
            Node::Subshell(body) => self.subshell(body)?,
        };
        self.set_status(status);
        if status != 0 && self.exits_on_error && !is_tested {
            return Err(Halt::Exit(status));
        }
        Ok(status)
    }

    fn set_status(&mut self, status: i64) -> i64 {
        self.status = status;
        status
    }

    fn command(
        &mut self,
        assignments: &[(String, Word)],
        words: &[Word],
        output: Output,
        errors: Errors,
    ) -> Step<i64> {
        let words = self.fields(words)?;
        let mut values = Vec::new();
        for (name, word) in assignments {
            values.push((name.clone(), self.text(word)?));
        }
        let Some((program, arguments)) = words.split_first() else {
            self.variables.extend(values);
            // The status of an assignment is that of its substitution.
            return Ok(if assignments.iter().any(|(_, word)| word.substitutes()) {
                self.status
            } else {
                0
            });
        };
        // A file that is written may be read by another process: nothing is known of it.
        if output == Output::File {
            return Err(Halt::Unknown);
        }
        let before = (self.variables.clone(), self.exported.clone(), self.discards);
        let redirected = (self.errors, self.prints_errors);
        if !values.is_empty() {
            self.exported
                .extend(values.iter().map(|(name, _)| name.clone()));
            self.variables.extend(values);
        }
        self.discards |= output == Output::Discarded;
        self.prints_errors |= output == Output::Errors;
        if errors != Errors::Own {
            self.errors = errors;
        }
        let status = match builtin::run(self, program, arguments) {
            Err(Halt::Unknown) if self.io.is_exec => Ok(self.fail(program)),
            status => status,
        };
        self.discards = before.2;
        (self.errors, self.prints_errors) = redirected;
        if !assignments.is_empty() {
            (self.variables, self.exported) = (before.0, before.1);
        }
        status
    }

    /// Says that a program is not there, or cannot do what it was asked; the exit code.
    fn fail(&mut self, program: &str) -> i64 {
        match builtin::is_known(program.rsplit('/').next().unwrap_or_default()) {
            true => {
                self.complain(&format!("{program}: not possible in a simulated container"));
                1
            }
            false => {
                self.complain(&format!("sh: {program}: not found"));
                127
            }
        }
    }

    fn conditional(
        &mut self,
        branches: &[(Node, Node)],
        otherwise: Option<&Node>,
        is_tested: bool,
    ) -> Step<i64> {
        for (condition, body) in branches {
            if self.node(condition, true)? == 0 {
                return self.node(body, is_tested);
            }
        }
        otherwise.map_or(Ok(0), |body| self.node(body, is_tested))
    }

    fn turns(&mut self, until: bool, condition: &Node, body: &Node) -> Step<i64> {
        let mut status = 0;
        while (self.node(condition, true)? == 0) != until {
            match self.turn(body)? {
                Some(code) => status = code,
                None => break,
            }
        }
        Ok(self.set_status(status))
    }

    fn each(&mut self, name: &str, words: &[Word], body: &Node) -> Step<i64> {
        let mut status = 0;
        for value in self.fields(words)? {
            self.variables.insert(name.into(), value);
            match self.turn(body)? {
                Some(code) => status = code,
                None => break,
            }
        }
        Ok(self.set_status(status))
    }

    /// One turn of a loop; none if the loop is left.
    fn turn(&mut self, body: &Node) -> Step<Option<i64>> {
        match self.node(body, false) {
            Ok(status) => Ok(Some(status)),
            Err(Halt::Break(0 | 1)) => Ok(None),
            Err(Halt::Continue(0 | 1)) => Ok(Some(0)),
            Err(Halt::Break(levels)) => Err(Halt::Break(levels - 1)),
            Err(Halt::Continue(levels)) => Err(Halt::Continue(levels - 1)),
            Err(halt) => Err(halt),
        }
    }

    fn subshell(&mut self, body: &Node) -> Step<i64> {
        let before = (
            self.variables.clone(),
            self.exported.clone(),
            self.exits_on_error,
        );
        let status = match self.node(body, false) {
            Err(Halt::Exit(code)) => Ok(code),
            other => other,
        };
        (self.variables, self.exported, self.exits_on_error) = before;
        status
    }

    /// What a part of the script prints, without the line breaks at its end.
    pub(super) fn captured(&mut self, body: &Node) -> Step<String> {
        let outer = (
            self.captured.replace(String::new()),
            std::mem::take(&mut self.discards),
        );
        let status = self.subshell(body);
        let text = self.captured.take().unwrap_or_default();
        (self.captured, self.discards) = outer;
        self.status = status?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Prints text at this moment, to where the present command prints.
    pub(super) fn print(&mut self, text: &str) {
        match &mut self.captured {
            _ if self.discards => {}
            Some(captured) if !self.prints_errors => captured.push_str(text),
            _ if self.prints_errors => self.emit(Descriptor::Stderr, text),
            _ => self.emit(Descriptor::Stdout, text),
        }
    }

    /// Adds text to the lines of the log, which has both outputs.
    pub(super) fn write_lines(&mut self, at: Duration, text: &str) {
        if self.limits.lines == 0 {
            return;
        }
        self.line.push_str(text);
        while let Some(end) = self.line.find('\n') {
            let rest = self.line.split_off(end + 1);
            self.line.pop();
            self.lines
                .push_back((at, std::mem::replace(&mut self.line, rest)));
            if self.lines.len() > self.limits.lines {
                self.lines.pop_front();
            }
        }
    }

    /// Prints a line to where errors of the present command go.
    pub(super) fn complain(&mut self, message: &str) {
        let line = format!("{message}\n");
        match self.errors {
            Errors::Discarded => {}
            Errors::Own => self.emit(Descriptor::Stderr, &line),
            Errors::Output => self.print(&line),
        }
    }

    /// Lets time pass.
    pub(super) fn sleep(&mut self, time: Duration) -> Step<()> {
        let (from, to) = (self.clock, self.clock.saturating_add(time));
        if let Some(at) = self.interrupted(from, to) {
            self.clock = at;
            return Err(Halt::Interrupt);
        }
        self.clock = self.clock.saturating_add(time);
        if self.clock > self.limits.until {
            Err(Halt::Limit)
        } else {
            Ok(())
        }
    }

    /// Ends the evaluation at the next step.
    pub(super) fn exhaust(&mut self) {
        self.steps = self.limits.steps;
    }

    /// Counts what was done; a script that does without end what takes no time is cut off.
    pub(super) fn step(&mut self) -> Step<()> {
        self.steps += 1;
        if self.steps > self.limits.steps {
            Err(Halt::Limit)
        } else {
            Ok(())
        }
    }
}
