//! Patches: JSON Patch, JSON merge patch, strategic merge patch.
//!
//! Kubernetes: the maps that a patch touches are sorted by key, and the rest is left as it was;
//! error messages show it.

mod go_text;
mod json_patch;
mod merge;
mod strategic;
mod strict;

pub(crate) use go_text::go_float;
pub use go_text::{go_text, go_type, go_type_verb};
pub use json_patch::{JsonPatch, JsonPatchError, json_diff};
pub use merge::merge;
pub use strategic::{StrategicError, strategic_diff, strategic_merge};
pub use strict::repeated_keys;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Struct;
    use mizzen_value::take_moved;
    use mizzen_value::{Map, Str, Value, value};

    const MANY: usize = 10_000;

    fn keys() -> impl Iterator<Item = Str> {
        (0..MANY).map(|number| Str::from(format!("key-{number}")))
    }

    /// Removing many members moves each of the remaining ones a few times at most.
    #[track_caller]
    fn check(remove: impl FnOnce(&mut Value)) {
        let mut target = Value::Map(keys().map(|key| (key, 1)).collect());
        take_moved();
        remove(&mut target);
        let n_moved = take_moved();
        assert!(
            target.is_empty() && (MANY..=3 * MANY).contains(&n_moved),
            "{n_moved} were moved"
        );
    }

    #[test]
    fn removing_very_many_members_costs_as_much_for_each() {
        let mut nulls = Value::Map(keys().map(|key| (key, Value::Null)).collect::<Map>());
        check(|target| merge(target, nulls.clone()));
        let root = Struct::new("", "", false);
        root.define(Vec::new(), Vec::new());
        check(|target| strategic_merge(&root, target, &mut nulls).unwrap());
        let removals = keys()
            .map(|key| value!({"op": "remove", "path": (format!("/{key}"))}))
            .collect();
        let removals = mizzen_value::json::to_string(&Value::List(removals));
        check(|target| {
            JsonPatch::parse(removals.as_bytes())
                .unwrap()
                .apply(target)
                .unwrap()
        });
    }
}
