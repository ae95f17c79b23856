//! Regular expressions as Go understands them: the patterns of schemas, of CEL and of flags.
//!
//! `parse` reads Go's syntax and reports Go's errors, `class` and `unicode` are sets of characters, `program` is what
//! a tree compiles to, `search` runs it, `pool` shares and bounds what is compiled.
//!
//! Why not the `regex` crate: its automata are over bytes, so that `\p{L}+` takes 140 KB and milliseconds to build.
//! Here a class is one instruction over characters: the same pattern takes some hundred bytes and microseconds.
//!
//! Invariant: [`check`] and [`Regexp::new`] build nothing; a pattern is compiled when it is first matched.
//! Invariant: what is compiled takes at most [`MAX_COMPILED_BYTES`], however many patterns there are.

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
use program::Program;
use search::Wanted;

/// Whether Go would compile a pattern, and how many instructions it takes. Builds nothing.
pub fn check(pattern: &str) -> Result<usize, ParseError> {
    parse::parse(pattern).map(|tree| tree.size)
}

/// A regular expression. Equal ones are shared.
#[derive(Debug)]
pub struct Regexp {
    pattern: Str,
    program: Mutex<Option<Arc<Program>>>,
}

impl Regexp {
    /// A handle on a pattern. Nothing is parsed yet: matching reports an invalid pattern.
    pub fn new(pattern: &str) -> Arc<Regexp> {
        pool::intern(pattern)
    }

    /// The same for a pattern that comes from data, which nothing else holds: the latest are kept, so that a loop does
    /// not compile the same pattern again and again.
    pub fn recent(pattern: &str) -> Arc<Regexp> {
        pool::intern_recent(pattern)
    }

    /// As it was written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether there is a match anywhere in `text`.
    pub fn is_match(&self, text: &str) -> Result<bool, ParseError> {
        Ok(self.program()?.search(text, 0, Wanted::Any).is_some())
    }

    /// The first matches that do not overlap.
    pub fn find_all<'a>(&self, text: &'a str, limit: usize) -> Result<Vec<&'a str>, ParseError> {
        Ok(self.program()?.find_all(text, limit))
    }

    fn program(&self) -> Result<Arc<Program>, ParseError> {
        if let Some(program) = &*self.compiled() {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::new(parse::parse(&self.pattern)?));
        pool::keep(self, &program);
        Ok(program)
    }

    fn compiled(&self) -> parking_lot::MutexGuard<'_, Option<Arc<Program>>> {
        self.program.lock()
    }
}

/// What must hold between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Assertion {
    BeginText,
    EndText,
    BeginLine,
    EndLine,
    WordBoundary,
    NoWordBoundary,
}

/// Why a text is no regular expression, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{shown}`")]
pub struct ParseError {
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
