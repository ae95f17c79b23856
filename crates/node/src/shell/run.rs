//! Lists, loops and conditions, on virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::exec::{Descriptor, ProcessIo};
use super::parse::{ErrorTarget, OutputTarget, ScriptNode, Word};
use super::{ContainerEnvironment, ShellLimits, builtin};

/// Why a script stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    Exit(i64),
    /// It leaves this many loops.
    Break(usize),
    /// It continues the loop this many levels up.
    Continue(usize),
    /// It reached something unknown.
    Unknown,
    /// A limit was reached: it still runs.
    Limit,
    /// The client interrupted it.
    Interrupt,
}

pub(super) type Step<T> = Result<T, Halt>;

/// The state of a shell.
pub(super) struct Shell<'a> {
    pub environment: &'a ContainerEnvironment,
    pub variables: BTreeMap<String, String>,
    pub exported: BTreeSet<String>,
    pub parameters: &'a [String],
    /// `$?`
    pub status: i64,
    pub exits_on_error: bool,
    /// Time since the start.
    pub clock: Duration,
    pub limits: ShellLimits,
    steps: u32,
    pub lines: VecDeque<(Duration, String)>,
    /// The output since the last line break.
    pub line: String,
    /// The output of a command substitution.
    captured: Option<String>,
    discards: bool,
    /// Where errors of the current command go.
    errors: ErrorTarget,
    /// Whether the current command prints to stderr.
    prints_errors: bool,
    /// The streams of the process.
    pub io: ProcessIo<'a>,
    /// The next unread input, and the offset into it.
    pub event: usize,
    pub offset: usize,
    /// Whether the process waits for input.
    pub reads: bool,
    /// The number of echoes printed.
    pub n_echoed: usize,
    /// The recorded output, and its total size.
    pub output: Vec<(Descriptor, String)>,
    pub size: usize,
}

impl<'a> Shell<'a> {
    pub(super) fn new(
        environment: &'a ContainerEnvironment,
        parameters: &'a [String],
        io: ProcessIo<'a>,
        limits: ShellLimits,
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
            errors: ErrorTarget::default(),
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
    /// Runs a node and returns its exit code. `is_tested` disables `set -e` for it.
    pub(super) fn run_node(&mut self, run_node: &ScriptNode, is_tested: bool) -> Step<i64> {
        self.step()?;
        let status = match run_node {
            ScriptNode::Command {
                assignments,
                words,
                output,
                errors,
            } => self.command(assignments, words, *output, *errors)?,
            ScriptNode::Sequence(nodes) => {
                let mut status = 0;
                for run_node in nodes {
                    status = self.run_node(run_node, is_tested)?;
                }
                return Ok(status);
            }
            ScriptNode::And(left, right) => match self.run_node(left, true)? {
                0 => return self.run_node(right, is_tested),
                status => return Ok(status),
            },
            ScriptNode::Or(left, right) => match self.run_node(left, true)? {
                0 => 0,
                _ => return self.run_node(right, is_tested),
            },
            ScriptNode::Not(inner) => {
                let status = self.run_node(inner, true)?;
                return Ok(self.set_status(i64::from(status == 0)));
            }
            ScriptNode::If(branches, otherwise) => {
                return self.conditional(branches, otherwise.as_deref(), is_tested);
            }
            ScriptNode::Loop {
                until,
                condition,
                body,
            } => return self.run_loop(*until, condition, body),
            ScriptNode::For { name, words, body } => return self.run_for(name, words, body),
            ScriptNode::Subshell(body) => self.subshell(body)?,
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
        output: OutputTarget,
        errors: ErrorTarget,
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
        // A written file may be read by another process, so its effect is unknown.
        if output == OutputTarget::File {
            return Err(Halt::Unknown);
        }
        let before = (self.variables.clone(), self.exported.clone(), self.discards);
        let redirected = (self.errors, self.prints_errors);
        if !values.is_empty() {
            self.exported
                .extend(values.iter().map(|(name, _)| name.clone()));
            self.variables.extend(values);
        }
        self.discards |= output == OutputTarget::Discarded;
        self.prints_errors |= output == OutputTarget::Errors;
        if errors != ErrorTarget::Own {
            self.errors = errors;
        }
        let status = match self.builtin(program, arguments) {
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

    /// Reports that a program does not exist or cannot do that; returns the exit code.
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
        branches: &[(ScriptNode, ScriptNode)],
        otherwise: Option<&ScriptNode>,
        is_tested: bool,
    ) -> Step<i64> {
        for (condition, body) in branches {
            if self.run_node(condition, true)? == 0 {
                return self.run_node(body, is_tested);
            }
        }
        otherwise.map_or(Ok(0), |body| self.run_node(body, is_tested))
    }

    fn run_loop(&mut self, until: bool, condition: &ScriptNode, body: &ScriptNode) -> Step<i64> {
        let mut status = 0;
        while (self.run_node(condition, true)? == 0) != until {
            match self.run_iteration(body)? {
                Some(code) => status = code,
                None => break,
            }
        }
        Ok(self.set_status(status))
    }

    fn run_for(&mut self, name: &str, words: &[Word], body: &ScriptNode) -> Step<i64> {
        let mut status = 0;
        for value in self.fields(words)? {
            self.variables.insert(name.into(), value);
            match self.run_iteration(body)? {
                Some(code) => status = code,
                None => break,
            }
        }
        Ok(self.set_status(status))
    }

    /// One iteration of a loop; `None` if the loop ends.
    fn run_iteration(&mut self, body: &ScriptNode) -> Step<Option<i64>> {
        match self.run_node(body, false) {
            Ok(status) => Ok(Some(status)),
            Err(Halt::Break(0 | 1)) => Ok(None),
            Err(Halt::Continue(0 | 1)) => Ok(Some(0)),
            Err(Halt::Break(levels)) => Err(Halt::Break(levels - 1)),
            Err(Halt::Continue(levels)) => Err(Halt::Continue(levels - 1)),
            Err(halt) => Err(halt),
        }
    }

    fn subshell(&mut self, body: &ScriptNode) -> Step<i64> {
        let before = (
            self.variables.clone(),
            self.exported.clone(),
            self.exits_on_error,
        );
        let status = match self.run_node(body, false) {
            Err(Halt::Exit(code)) => Ok(code),
            other => other,
        };
        (self.variables, self.exported, self.exits_on_error) = before;
        status
    }

    /// The output of a node, without trailing line breaks.
    pub(super) fn captured(&mut self, body: &ScriptNode) -> Step<String> {
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

    /// Prints text to the output of the current command.
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

    /// Prints a line to the errors of the current command.
    pub(super) fn complain(&mut self, message: &str) {
        let line = format!("{message}\n");
        match self.errors {
            ErrorTarget::Discarded => {}
            ErrorTarget::Own => self.emit(Descriptor::Stderr, &line),
            ErrorTarget::Output => self.print(&line),
        }
    }

    /// Advances the virtual time.
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

    /// Counts a step; a script without end that takes no time is stopped.
    pub(super) fn step(&mut self) -> Step<()> {
        self.steps += 1;
        if self.steps > self.limits.steps {
            Err(Halt::Limit)
        } else {
            Ok(())
        }
    }
}
