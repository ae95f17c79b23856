//! Merging a configuration without managed fields.

use super::schema;
use crate::managed_fields::apply_structured_merge;
use mizzen_value::json;

#[track_caller]
fn check(object: &str, part: &str, expected: Result<&str, &str>) {
    let mut object = json::parse(object.as_bytes()).unwrap();
    let outcome =
        apply_structured_merge(schema(), &mut object, json::parse(part.as_bytes()).unwrap());
    let outcome = outcome
        .map(|()| json::to_string(&object))
        .map_err(|error| error.to_string());
    assert_eq!(outcome.as_deref().map_err(String::as_str), expected);
}

#[test]
fn fields_that_are_not_in_the_configuration_stay() {
    check(
        r#"{"spec":{"replicas":1,"data":{"a":"1"},"items":[{"name":"x","image":"i"},{"name":"y"}]}}"#,
        r#"{"spec":{"data":{"b":"2"},"items":[{"name":"x","tags":["t"]},{"name":"z"}]}}"#,
        Ok(
            r#"{"spec":{"replicas":1,"data":{"a":"1","b":"2"},"items":[{"name":"x","image":"i","tags":["t"]},{"name":"y"},{"name":"z"}]}}"#,
        ),
    );
}

#[test]
fn atomic_values_cannot_be_merged() {
    check(
        "{}",
        r#"{"spec":{"args":["a"],"selector":{"a":"b"},"items":[{"name":"x"}]}}"#,
        Err(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.args, .spec.selector",
        ),
    );
}

#[test]
fn a_configuration_must_match_the_schema() {
    check(
        "{}",
        r#"{"spec":{"nope":1}}"#,
        Err(
            "failed to convert patch object to typed object: .spec.nope: field not declared in schema",
        ),
    );
}
