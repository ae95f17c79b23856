//! Errors with their positions in the source.

use std::fmt::{self, Write};

/// An error and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The position in characters; `None` if it has none.
    pub at: Option<usize>,
    /// The message.
    pub message: String,
}

impl Issue {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Issue {
        Issue {
            at: Some(at),
            message: message.into(),
        }
    }

    pub(crate) fn nowhere(message: impl Into<String>) -> Issue {
        Issue {
            at: None,
            message: message.into(),
        }
    }
}

/// Syntax and type errors, printed with the source lines as cel-go does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    text: String,
    /// The errors in order of position.
    pub issues: Vec<Issue>,
}

/// More errors than this are only counted.
const SHOWN: usize = 100;
/// Longer lines are not printed.
const MAX_LINE: usize = 16_384;

impl CompileError {
    pub(crate) fn new(text: &str, mut issues: Vec<Issue>) -> CompileError {
        let n_issues = issues.len();
        issues.truncate(SHOWN);
        issues.sort_by_key(|issue| issue.at.map(|at| at as i64).unwrap_or(-1));
        if n_issues > SHOWN {
            issues.push(Issue::nowhere(format!(
                "{} more errors were truncated",
                n_issues - SHOWN
            )));
        }
        CompileError {
            text: text.into(),
            issues,
        }
    }

    fn write(&self, f: &mut fmt::Formatter, issue: &Issue) -> fmt::Result {
        let Some(at) = issue.at else {
            return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
        };
        // Kubernetes: an empty source has no first character (cel-go's common/source.go).
        if self.text.is_empty() {
            return write!(f, "ERROR: <input>:1:0: {}", issue.message);
        }
        let (line, column) = self.locate(at);
        write!(
            f,
            "ERROR: <input>:{}:{}: {}",
            line + 1,
            column + 1,
            issue.message
        )?;
        match self.text.split('\n').nth(line) {
            Some(text) if text.len() <= MAX_LINE => write_line(f, &text.replace('\t', " "), column),
            _ => Ok(()),
        }
    }

    /// The line and the column of a position.
    fn locate(&self, at: usize) -> (usize, usize) {
        let before = self.text.chars().take(at);
        before.fold((0, 0), |(line, column), c| {
            if c == '\n' {
                (line + 1, 0)
            } else {
                (line, column + 1)
            }
        })
    }
}

fn write_line(f: &mut fmt::Formatter, line: &str, column: usize) -> fmt::Result {
    write!(f, "\n | {line}\n | ")?;
    let mut rest = line.chars();
    for c in rest.by_ref().take(column) {
        f.write_char(if c.is_ascii() { '.' } else { '\u{ff0e}' })?;
    }
    f.write_char(if rest.next().is_none_or(|c| c.is_ascii()) {
        '^'
    } else {
        '\u{ff3e}'
    })
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (n, issue) in self.issues.iter().enumerate() {
            if n > 0 {
                f.write_char('\n')?;
            }
            match issue.at {
                None if n == SHOWN => f.write_str(&issue.message)?,
                _ => self.write(f, issue)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}
