//! The simulated shell: what a command prints, how long it takes, and how it ends.
//!
//! A simulated container has no image, but `echo`, `sleep`, `cat` of a mounted ConfigMap or a small
//! `sh -c` script need none. In order of evaluation: `parse` (text to [`ShellScript`]), `expand`
//! (words, variables, arithmetic), `run` (lists, loops and conditions on virtual time), `builtin`
//! (the known commands). `exec` is a process with its streams.
//!
//! An unknown command in a container's own process ends the simulation at that point:
//! [`ProgramState::Unknown`]. Earlier output stays, and the container continues as one with an
//! unknown program.
//!
//! Invariant: pure. Time is a number that `sleep` adds to, and every evaluation is bounded in
//! steps, lines and virtual time.

mod builtin;
mod exec;
mod expand;
mod parse;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use exec::{
    Descriptor, Input, ProcessIo, ProgramProgress, ProgramState, ShellProgram, Typed,
};
use parse::ShellScript;

use crate::moment::Moment;
use crate::pod::inputs::{Files, is_below};

/// The environment of a command.
#[derive(Debug, Clone, Default)]
pub struct ContainerEnvironment {
    /// The environment variables.
    pub variables: BTreeMap<String, String>,
    /// Files of mounted volumes with the time of each version, oldest first.
    pub files: Vec<(Moment, Files)>,
    /// The directories below which every file is known.
    pub mounts: Vec<String>,
    /// When the container started.
    pub started: Moment,
}

impl ContainerEnvironment {
    /// The files at some time after the start.
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

/// The state of a container's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramOutcome {
    Exited {
        after: Duration,
        code: i64,
    },
    Running,
    /// It reached an unknown command.
    Unknown {
        after: Duration,
    },
}

impl ProgramProgress {
    pub(crate) fn outcome(&self) -> ProgramOutcome {
        let after = self.clock;
        match self.state {
            ProgramState::Exited(code) => ProgramOutcome::Exited { after, code },
            ProgramState::Unknown => ProgramOutcome::Unknown { after },
            ProgramState::Sleeping(_) | ProgramState::Reading | ProgramState::Exhausted => {
                ProgramOutcome::Running
            }
        }
    }
}

/// The limits of one evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShellLimits {
    /// Virtual time since the start.
    pub until: Duration,
    /// Commands, words and loop iterations together.
    pub steps: u32,
    /// The latest lines that are kept; 0 for none.
    pub lines: usize,
}

impl ShellLimits {
    /// Up to some time after the start.
    pub(crate) fn until(until: Duration) -> ShellLimits {
        ShellLimits {
            until,
            steps: 1_000_000,
            lines: 10_000,
        }
    }
}

/// Parses a command and its arguments; `None` if the program is not known.
fn parse(words: &[String]) -> Option<ShellScript> {
    let program = words.first()?.rsplit('/').next()?;
    match (program, words.get(1).map(String::as_str)) {
        (program, Some(option)) if is_shell(program) && is_command_option(option) => {
            let (text, parameters) = words.get(2..)?.split_first()?;
            let script = ShellScript::parse(text, parameters).ok()?;
            Some(ShellScript {
                exits_on_error: option.contains('e'),
                ..script
            })
        }
        (program, _) if builtin::is_known(program) => Some(ShellScript::of_words(words)),
        _ => None,
    }
}

/// Whether a command may read files, by its words.
pub(crate) fn may_read_files(words: &[String]) -> bool {
    let readers = ["cat", "ls", "-d", "-e", "-f", "-r", "-s"];
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut parts = words.iter().flat_map(|word| word.split(|c| !is_of_word(c)));
    parts.any(|part| readers.contains(&part))
}

fn is_shell(program: &str) -> bool {
    matches!(
        program.rsplit('/').next(),
        Some("sh" | "ash" | "bash" | "dash")
    )
}

/// `-c`, alone or with options that have no visible effect.
fn is_command_option(option: &str) -> bool {
    option.strip_prefix('-').is_some_and(|letters| {
        letters.ends_with('c') && letters.chars().all(|c| "celux".contains(c))
    })
}
