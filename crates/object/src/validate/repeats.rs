//! Duplicates in a list, in one pass.

use std::collections::HashSet;
use std::hash::Hash;

use mizzen_value::Value;

/// For each item whether an earlier one has the same key.
pub fn repeats<'a, K: Hash + Eq>(items: &'a [Value], key: impl Fn(&'a Value) -> K) -> Vec<bool> {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().map(|item| !seen.insert(key(item))).collect()
}

#[cfg(test)]
mod tests {
    use super::repeats;
    use mizzen_value::value;

    #[test]
    fn the_first_occurrence_is_not_a_duplicate() {
        let items = value!([{"name": "a"}, {"name": "b"}, {"name": "a"}, {}, {"name": ""}]);
        let names = repeats(items.list(), |item| item["name"].str());
        assert_eq!(names, [false, false, true, false, true]);
    }
}
