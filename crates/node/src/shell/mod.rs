//! What does a plain command print, how long does it take, and how does it end?
//!
//! A simulated container has no image, but what `echo`, `sleep`, `cat` of a mounted ConfigMap or a small `sh -c` script do is
//! known without one. In the order a script walks: `parse` (text to [`Script`]), `expand` (words, variables, arithmetic), `run`
//! (lists, loops and conditions on virtual time), `builtin` (the commands that are known). `exec` is a process with its streams.
//!
//! The first command of a container that is not known ends the simulation at that point: [`State::Unknown`]. What was printed
//! until then stays printed, and the container goes on as one that nothing is known of.
//!
//! Invariant: pure. Time is a number that `sleep` adds to, and every evaluation is bounded in steps, lines and virtual time.

mod builtin;
mod exec;
mod expand;
mod parse;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use exec::{Descriptor, Input, ProcessIo, Program, Progress, State, Typed};
use parse::Script;

use crate::moment::Moment;
use crate::pod::inputs::{Files, is_below};

/// What a command sees of its container.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// Files of mounted volumes, and since when they are so, oldest first.
    pub files: Vec<(Moment, Files)>,
    /// The directories below which every file is known.
    pub mounts: Vec<String>,
    /// When the container started.
    pub started: Moment,
}

impl Environment {
    /// The files that there are at some time after the start.
    fn files_at(&self, after: Duration) -> &Files {
        static NONE: Files = Files::new();
        let now = self.started + after;
        let mut versions = self.files.iter().rev();
        let version = versions
            .find(|(since, _)| *since <= now)
            .or_else(|| self.files.first());
        version.map_or(&NONE, |(_, files)| files)
    }

    /// Whether every file at or below a path is known.
    fn knows(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| is_below(path, mount))
    }
}

/// How the process of a container is at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ended with an exit code.
    Exited { after: Duration, code: i64 },
    /// It runs.
    Running,
    /// It came to a command that is not known.
    Unknown { after: Duration },
}

impl Progress {
    /// How a container is whose process has come so far.
    pub(crate) fn outcome(&self) -> Outcome {
        let after = self.clock;
        match self.state {
            State::Exited(code) => Outcome::Exited { after, code },
            State::Unknown => Outcome::Unknown { after },
            State::Sleeping(_) | State::Reading | State::Exhausted => Outcome::Running,
        }
    }
}

/// How much one evaluation may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Virtual time since the start.
    pub until: Duration,
    /// Commands, words and turns of loops together.
    pub steps: u32,
    /// The latest lines that are kept; 0 if none are wanted.
    pub lines: usize,
}

impl Limits {
    /// Up to a moment after the start.
    pub(crate) fn until(until: Duration) -> Limits {
        Limits {
            until,
            steps: 1_000_000,
            lines: 10_000,
        }
    }
}

/// Reads a command and its arguments; none if nothing is known of the program.
fn parse(words: &[String]) -> Option<Script> {
    let program = words.first()?.rsplit('/').next()?;
    match (program, words.get(1).map(String::as_str)) {
        (program, Some(option)) if is_shell(program) && is_command_option(option) => {
            let (text, parameters) = words.get(2..)?.split_first()?;
            let script = Script::parse(text, parameters).ok()?;
            Some(Script {
                exits_on_error: option.contains('e'),
                ..script
            })
        }
        (program, _) if builtin::is_known(program) => Some(Script::of_words(words)),
        _ => None,
    }
}

/// Whether a command may read files: one of its words is a program or a test that does.
pub(crate) fn may_read_files(words: &[String]) -> bool {
    let readers = ["cat", "ls", "-d", "-e", "-f", "-r", "-s"];
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut parts = words.iter().flat_map(|word| word.split(|c| !is_of_word(c)));
    parts.any(|part| readers.contains(&part))
}

/// Whether a program is a shell.
fn is_shell(program: &str) -> bool {
    matches!(
        program.rsplit('/').next(),
        Some("sh" | "ash" | "bash" | "dash")
    )
}

/// `-c`, alone or with options that change nothing that can be seen.
fn is_command_option(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|letters| {
        letters.ends_with('c') && letters.chars().all(|c| "celux".contains(c))
    })
}
