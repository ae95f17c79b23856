//! The `pattern` of a schema.

use std::sync::{Arc, OnceLock};

use mizzen_go_regexp::{Regexp, RegexpError};
use mizzen_value::Str;

/// A regular expression, compiled at its first match, because most never match.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The pattern.
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

    /// A constant pattern.
    pub(crate) const fn fixed(text: &'static str) -> Pattern {
        Pattern {
            text: Str::new_static(text),
            regexp: OnceLock::new(),
        }
    }

    /// Whether it matches `value`; an invalid pattern never does.
    pub(crate) fn is_match(&self, value: &str) -> bool {
        self.try_match(value).unwrap_or(false)
    }

    /// Whether it matches `value`, or the syntax error.
    pub(crate) fn try_match(&self, value: &str) -> Result<bool, RegexpError> {
        self.regexp
            .get_or_init(|| Regexp::new(&self.text))
            .is_match(value)
    }
}
