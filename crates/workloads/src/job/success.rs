//! The success policy (`spec.successPolicy`).

use mizzen_value::Value;

use super::indexes::Indexes;

/// The message of the first rule that is met.
pub(super) fn met_rule(job: &Value, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let completions = job["spec"]["completions"].int();
    let mut rules = job["spec"]["successPolicy"]["rules"].list().iter();
    let place = rules.position(|rule| {
        let count = rule["succeededCount"].as_int();
        let is_enough = |n: i64| count.is_some_and(|count| n >= count);
        let Some(wanted) = rule["succeededIndexes"].as_str() else {
            return is_enough(succeeded.len());
        };
        let wanted = Indexes::parse(wanted, completions);
        let n_common = wanted.n_common(succeeded);
        !wanted.is_empty() && (n_common == wanted.len() || is_enough(n_common))
    })?;
    Some(format!("Matched rules at index {place}"))
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(rules: Value, succeeded: &str, expect: Option<&str>) {
        let job = value!({"spec": {"completions": 10, "successPolicy": {"rules": rules}}});
        assert_eq!(
            met_rule(&job, &Indexes::parse(succeeded, 10)).as_deref(),
            expect
        );
    }

    #[test]
    fn all_wanted_indexes_are_enough() {
        check(value!([{"succeededIndexes": "0,2-4"}]), "0,2,3", None);
        check(
            value!([{"succeededIndexes": "0,2-4"}]),
            "0-5",
            Some("Matched rules at index 0"),
        );
    }

    #[test]
    fn the_succeeded_count_is_enough() {
        check(
            value!([{"succeededIndexes": "0-4", "succeededCount": 2}]),
            "0,7-9",
            None,
        );
        check(
            value!([{"succeededIndexes": "0-4", "succeededCount": 2}]),
            "0,3,7",
            Some("Matched rules at index 0"),
        );
        check(
            value!([{"succeededIndexes": "0"}, {"succeededCount": 2}]),
            "5,7",
            Some("Matched rules at index 1"),
        );
    }

    #[test]
    fn nothing_is_met_before_anything_succeeded() {
        check(value!([{"succeededCount": 0}]), "", None);
        check(value!([]), "1", None);
    }
}
