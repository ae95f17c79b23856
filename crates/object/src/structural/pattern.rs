//! A regular expression of a schema.

use std::sync::{Arc, OnceLock};

use mizzen_go_regexp::{ParseError, Regexp};
use mizzen_value::Str;

/// A regular expression, compiled when it is first matched: most never are.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// As it was written.
    pub text: Str,
    regexp: OnceLock<Arc<Regexp>>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Pattern {
        Pattern {
            text: text.into(),
            regexp: OnceLock::new(),
        }
    }

    /// One that is written in the program.
    pub(crate) const fn fixed(text: &'static str) -> Pattern {
        Pattern {
            text: Str::new_static(text),
            regexp: OnceLock::new(),
        }
    }

    /// Whether it is found in `value`; never, if it is no regular expression.
    pub(crate) fn is_match(&self, value: &str) -> bool {
        self.try_match(value).unwrap_or(false)
    }

    /// The same, or why it is no regular expression.
    pub(crate) fn try_match(&self, value: &str) -> Result<bool, ParseError> {
        self.regexp
            .get_or_init(|| Regexp::new(&self.text))
            .is_match(value)
    }
}
