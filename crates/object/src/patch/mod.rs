//! Changing an object by a patch.
//!
//! Kubernetes: the maps that a patch touches come out sorted by key, the others as they were; error messages
//! show it, so we do the same.

mod go_text;
mod json_patch;
mod merge;
mod strategic;
mod strict;

pub(crate) use go_text::go_float;
pub use go_text::{go_text, go_type};
pub use json_patch::{JsonPatch, JsonPatchError};
pub use merge::merge;
pub use strategic::{StrategicError, strategic_diff, strategic_merge};
pub use strict::repeated_keys;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::schema::Struct;
    use crate::{Map, Str, Value, value};

    fn keys(n: usize) -> impl Iterator<Item = Str> {
        (0..n).map(|number| Str::from(format!("key-{number}")))
    }

    /// How long it takes to remove all of `n` members, at best of some tries.
    fn emptied(n: usize, form: &str) -> Duration {
        let once = |_| {
            let mut target = Value::Map(keys(n).map(|key| (key, 1)).collect());
            let mut nulls = Value::Map(keys(n).map(|key| (key, Value::Null)).collect::<Map>());
            let removals = keys(n).map(|key| value!({"op": "remove", "path": (format!("/{key}"))})).collect();
            let removals = crate::json::to_string(&Value::List(removals));
            let root = Struct::new("", "", false);
            root.define(Vec::new(), Vec::new());
            let began = Instant::now();
            match form {
                "merge" => merge(&mut target, nulls),
                "strategic" => strategic_merge(&root, &mut target, &mut nulls).unwrap(),
                _ => JsonPatch::parse(removals.as_bytes()).unwrap().apply(&mut target).unwrap(),
            }
            let took = began.elapsed();
            assert!(target.is_empty(), "{form}");
            took
        };
        (0..3).map(once).min().unwrap_or_default()
    }

    #[test]
    fn removing_very_many_members_costs_as_much_for_each() {
        for form in ["merge", "strategic", "json"] {
            let (few, many) = (emptied(300, form), emptied(9_600, form));
            // Thirty-two times as many: a thousand times as long, if each costs as much as there are.
            assert!(many < few * 200, "{form}: {few:?} for few, {many:?} for many");
        }
    }
}
