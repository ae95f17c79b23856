//! Conversion of CEL values to JSON values.

use base64::Engine;

use super::standard::show;
use super::value::{MapVal, Value};
use mizzen_value as object;

/// The maximum number of nodes of a converted value. Values may be shared, so a small value can
/// expand to many nodes.
const MAX_PARTS: usize = 1_000_000;

/// The largest integer that JSON readers can keep in a floating point number.
const EXACT: u64 = (1 << 53) - 1;

impl Value<'_> {
    /// The value as JSON; `None` if JSON cannot express it, or if it is too large.
    pub fn to_data(&self) -> Option<object::Value> {
        DataConverter { left: MAX_PARTS }.data(self)
    }
}

struct DataConverter {
    left: usize,
}

impl DataConverter {
    fn data(&mut self, value: &Value) -> Option<object::Value> {
        self.left = self.left.checked_sub(1)?;
        Some(match value {
            Value::Null => object::Value::Null,
            Value::Bool(bool) => object::Value::Bool(*bool),
            Value::Int(int) if int.unsigned_abs() <= EXACT => object::Value::Int(*int),
            Value::Uint(uint) if *uint <= EXACT => object::Value::Int(*uint as i64),
            Value::Double(double) if double.is_finite() => {
                object::json::parse(double.to_string().as_bytes()).ok()?
            }
            Value::Bytes(bytes) => base64::engine::general_purpose::STANDARD
                .encode(bytes)
                .into(),
            Value::List(list) => {
                let items = list.iter().map(|item| self.data(&item.ok()?));
                object::Value::List(items.collect::<Option<_>>()?)
            }
            Value::Map(map) => object::Value::Map(self.members(map)?),
            Value::Optional(Some(inside)) => self.data(inside)?,
            Value::Type(_) | Value::Optional(None) | Value::Opaque(_) => return None,
            // Kubernetes: integers that do not fit a floating point number are strings in
            // protobuf's JSON.
            other => show(other).into(),
        })
    }

    fn members(&mut self, map: &MapVal) -> Option<object::Map> {
        let entries = map.keys().into_iter().map(|key| {
            let value = map.get(&key)?.ok()?;
            Some((object::Str::from(key.as_str()?), self.data(&value)?))
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::LATEST;
    use crate::{Environment, EvalLimits, Value};
    use mizzen_value::json;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let program = Environment::new(LATEST).compile(text).expect("sound");
        let nothing: [(&str, Value); 0] = [];
        let value = program
            .evaluate(
                &nothing,
                EvalLimits {
                    cost: 1_000_000,
                    interrupted: None,
                },
            )
            .value;
        let data = value.expect("a value").to_data();
        assert_eq!(
            data.map(|data| json::to_string(&data)).as_deref(),
            expect,
            "{text}"
        );
    }

    #[test]
    fn plain_values_are_data() {
        check(
            "[dyn(1), dyn(2u), dyn(2.5), dyn(3.0), dyn('a'), dyn(true), dyn(null)]",
            Some("[1,2,2.5,3,\"a\",true,null]"),
        );
        check("{'a': {'b': [1]}}", Some("{\"a\":{\"b\":[1]}}"));
        check("b'ab'", Some("\"YWI=\""));
        check("duration('90s')", Some("\"90s\""));
        check(
            "timestamp('2024-01-02T03:04:05Z')",
            Some("\"2024-01-02T03:04:05Z\""),
        );
        check("9007199254740993", Some("\"9007199254740993\""));
    }

    #[test]
    fn values_that_json_cannot_express_are_not_data() {
        check("int", None);
        check("{1: 2}", None);
        check("quantity('1')", None);
        check("optional.none()", None);
    }

    #[test]
    fn shared_parts_are_counted_each_time() {
        let mut text = String::from("[1, 1]");
        for _ in 0..20 {
            text = format!("[{text}].map(x, [x, x])[0]");
        }
        check(&text, None);
    }
}
