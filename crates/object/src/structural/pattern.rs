//! A regular expression of a schema, compiled when it is first needed: most never are.

use std::sync::OnceLock;

use regex::Regex;

use crate::expression;
use crate::value::Str;

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// As it was written.
    pub text: Str,
    compiled: OnceLock<Option<Box<Regex>>>,
}

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        Pattern { text: text.into(), compiled: OnceLock::new() }
    }

    /// One that is written in the program.
    pub const fn fixed(text: &'static str) -> Pattern {
        Pattern { text: Str::new_static(text), compiled: OnceLock::new() }
    }

    /// Whether it is found in `value`; never, if it is no regular expression.
    pub fn is_match(&self, value: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| expression::compile(&self.text).map(Box::new));
        compiled.as_ref().is_some_and(|regex| regex.is_match(value))
    }
}
