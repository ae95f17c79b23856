//! Regular expressions with the syntax and the semantics of Go's `regexp` (RE2).
//!
//! Accepts and rejects exactly the patterns that Go does, with Go's errors, and prefers the same
//! matches. The patterns of CustomResourceDefinitions, of CEL and of some flags are in this syntax.
//!
//! ```
//! use mizzen_go_regexp::Regexp;
//!
//! let name = Regexp::new(r"^[a-z]([-a-z0-9]*[a-z0-9])?$");
//! assert_eq!(name.is_match("web-0"), Ok(true));
//! assert_eq!(name.is_match("Web"), Ok(false));
//! assert_eq!(Regexp::new(r"\pL+").find_all("où est-ce", 2).unwrap(), ["où", "est"]);
//!
//! let error = mizzen_go_regexp::check("a(b").unwrap_err();
//! assert_eq!(error.to_string(), "error parsing regexp: missing closing ): `a(b`");
//! ```
//!
//! A search takes time in proportion to the text times the pattern. Not built on the `regex` crate,
//! because its automata work on bytes: `\p{L}+` takes 140 KB and milliseconds to build. Here a class
//! is one instruction over characters, and the same pattern takes some hundred bytes and
//! microseconds.
//!
//! # Modules
//!
//! - `parse`: the parser, with Go's errors.
//! - `class` and `unicode`: character classes.
//! - `program`: the compiler from the syntax tree to a program.
//! - `search`: the matcher, which runs all threads of a program in parallel.
//! - `pool`: shared patterns, and the limit on the memory of compiled ones.
//!
//! Invariant: [`check`] and [`Regexp::new`] compile nothing; a pattern is compiled at its first
//! match.
//!
//! Invariant: all compiled patterns together take at most [`MAX_COMPILED_BYTES`].

mod class;
mod parse;
mod pool;
mod program;
mod search;
#[cfg(test)]
mod tests;
mod unicode;

pub use parse::MAX_SIZE;
pub use pool::{MAX_COMPILED_BYTES, compiled_bytes};

use parking_lot::Mutex;
use std::sync::Arc;

use mizzen_value::Str;
use program::Prog;
use search::MatchMode;

/// Whether Go compiles a pattern, and its number of instructions. Does not compile it.
pub fn check(pattern: &str) -> Result<usize, RegexpError> {
    parse::parse(pattern).map(|tree| tree.size)
}

/// A regular expression. Equal patterns share one.
#[derive(Debug)]
pub struct Regexp {
    pattern: Str,
    program: Mutex<Option<Arc<Prog>>>,
}

impl Regexp {
    /// A handle for a pattern. It is parsed at the first match, which reports a syntax error.
    pub fn new(pattern: &str) -> Arc<Regexp> {
        pool::intern(pattern)
    }

    /// Like [`Regexp::new`], for patterns that no caller holds: the most recent ones are kept, so
    /// that a loop does not compile the same pattern repeatedly.
    pub fn recent(pattern: &str) -> Arc<Regexp> {
        pool::intern_recent(pattern)
    }

    /// The pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether the pattern matches anywhere in `text`.
    pub fn is_match(&self, text: &str) -> Result<bool, RegexpError> {
        Ok(self.program()?.search(text, 0, MatchMode::Any).is_some())
    }

    /// The first `limit` non-overlapping matches.
    pub fn find_all<'a>(&self, text: &'a str, limit: usize) -> Result<Vec<&'a str>, RegexpError> {
        Ok(self.program()?.find_all(text, limit))
    }

    fn program(&self) -> Result<Arc<Prog>, RegexpError> {
        if let Some(program) = &*self.compiled() {
            return Ok(program.clone());
        }
        let program = Arc::new(Prog::new(parse::parse(&self.pattern)?));
        pool::keep(self, &program);
        Ok(program)
    }

    fn compiled(&self) -> parking_lot::MutexGuard<'_, Option<Arc<Prog>>> {
        self.program.lock()
    }
}

/// A zero-width assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Assertion {
    BeginText,
    EndText,
    BeginLine,
    EndLine,
    WordBoundary,
    NoWordBoundary,
}

/// A syntax error, with Go's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{shown}`")]
pub struct RegexpError {
    code: ErrorCode,
    shown: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ErrorCode {
    #[error("invalid character class range")]
    InvalidCharRange,
    #[error("invalid escape sequence")]
    InvalidEscape,
    #[error("invalid named capture")]
    InvalidNamedCapture,
    #[error("invalid or unsupported Perl syntax")]
    InvalidPerlOp,
    #[error("invalid nested repetition operator")]
    InvalidRepeatOp,
    #[error("invalid repeat count")]
    InvalidRepeatSize,
    #[error("missing closing ]")]
    MissingBracket,
    #[error("missing closing )")]
    MissingParen,
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    #[error("unexpected )")]
    UnexpectedParen,
    #[error("expression nests too deeply")]
    NestingDepth,
    #[error("expression too large")]
    Large,
}
