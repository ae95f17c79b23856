//! A limit for the total size of a definition's regular expressions.

use mizzen_go_regexp as go_regexp;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::{schemas, walk};

/// The most instructions of all patterns of all versions. One alone may have [`go_regexp::MAX_SIZE`].
const LIMIT: usize = 1_000_000;

/// Refuses patterns that are too large together. A definition that was too large may stay so, but not grow.
pub(in crate::definition) fn validate_sizes(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let size = total(spec);
    if size > LIMIT && old.is_none_or(|old| total(old) < size) {
        let detail = format!(
            "the regular expressions of all versions take {size} instructions, more than the limit of {LIMIT} (try \
             fewer or smaller counted repetitions)"
        );
        violations.forbidden(path, &detail);
    }
}

fn total(spec: &Value) -> usize {
    schemas(spec).map(size).fold(0, usize::saturating_add)
}

fn size(schema: &Value) -> usize {
    if schema.as_map().is_none() {
        return 0;
    }
    // What is no regular expression is refused for that.
    let own = go_regexp::check(schema["pattern"].str()).unwrap_or_default();
    walk::below(schema)
        .map(size)
        .fold(own, usize::saturating_add)
}
