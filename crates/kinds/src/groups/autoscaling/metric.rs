//! Conversion of one metric between the two shapes.
//!
//! Version 2 says `metric`, `target` and `current`; version 1 has a flat list of fields for each source.

use mizzen_value::{Map, Str, Value, quantity};

/// The sources of a metric, as they follow each other in JSON.
const SOURCES: [&str; 5] = [
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
];

/// A wanted metric in the shape of version 1.
pub(super) fn spec_to_v1(metric: &Value) -> Value {
    to_v1(metric, |source, value| {
        let (metric, target) = (&value["metric"], &value["target"]);
        match source {
            "object" => fields([
                ("target", reference(&value["describedObject"])),
                ("metricName", metric["name"].clone()),
                ("targetValue", or_zero(&target["value"])),
                ("selector", metric["selector"].clone()),
                ("averageValue", target["averageValue"].clone()),
            ]),
            "pods" => fields([
                ("metricName", metric["name"].clone()),
                ("targetAverageValue", or_zero(&target["averageValue"])),
                ("selector", metric["selector"].clone()),
            ]),
            "external" => fields([
                ("metricName", metric["name"].clone()),
                ("metricSelector", metric["selector"].clone()),
                ("targetValue", target["value"].clone()),
                ("targetAverageValue", target["averageValue"].clone()),
            ]),
            _ => fields([
                ("name", value["name"].clone()),
                (
                    "targetAverageUtilization",
                    target["averageUtilization"].clone(),
                ),
                ("targetAverageValue", target["averageValue"].clone()),
                ("container", value["container"].clone()),
            ]),
        }
    })
}

/// A measured metric in the shape of version 1.
pub(super) fn status_to_v1(metric: &Value) -> Value {
    to_v1(metric, |source, value| {
        let (metric, current) = (&value["metric"], &value["current"]);
        match source {
            "object" => fields([
                ("target", reference(&value["describedObject"])),
                ("metricName", metric["name"].clone()),
                ("currentValue", or_zero(&current["value"])),
                ("selector", metric["selector"].clone()),
                ("averageValue", current["averageValue"].clone()),
            ]),
            "pods" => fields([
                ("metricName", metric["name"].clone()),
                ("currentAverageValue", or_zero(&current["averageValue"])),
                ("selector", metric["selector"].clone()),
            ]),
            "external" => fields([
                ("metricName", metric["name"].clone()),
                ("metricSelector", metric["selector"].clone()),
                ("currentValue", or_zero(&current["value"])),
                ("currentAverageValue", current["averageValue"].clone()),
            ]),
            _ => fields([
                ("name", value["name"].clone()),
                (
                    "currentAverageUtilization",
                    current["averageUtilization"].clone(),
                ),
                ("currentAverageValue", or_zero(&current["averageValue"])),
                ("container", value["container"].clone()),
            ]),
        }
    })
}

/// A wanted metric of version 1; none if version 1 could not read it either.
pub(super) fn spec_from_v1(metric: &Value) -> Option<Value> {
    from_v1(metric, |source, value| {
        let average = amount(&value["targetAverageValue"])?;
        Some(match source {
            "object" => object_from_v1(value)?,
            "pods" => fields([
                ("metric", identifier(value, "selector")),
                (
                    "target",
                    target("AverageValue", Value::Null, or_zero(&average), Value::Null),
                ),
            ]),
            "external" => {
                let total = amount(&value["targetValue"])?;
                let target_type = if total.is_null() {
                    "AverageValue"
                } else {
                    "Value"
                };
                fields([
                    ("metric", identifier(value, "metricSelector")),
                    ("target", target(target_type, total, average, Value::Null)),
                ])
            }
            _ => {
                let utilization = value["targetAverageUtilization"].clone();
                let target_type = if utilization.is_null() {
                    "AverageValue"
                } else {
                    "Utilization"
                };
                fields([
                    ("name", value["name"].clone()),
                    (
                        "target",
                        target(target_type, Value::Null, average, utilization),
                    ),
                    ("container", value["container"].clone()),
                ])
            }
        })
    })
}

fn object_from_v1(value: &Value) -> Option<Value> {
    let (total, average) = (
        or_zero(&amount(&value["targetValue"])?),
        amount(&value["averageValue"])?,
    );
    let by_average = !average.is_null();
    let total = if by_average && total.str() == "0" {
        Value::Null
    } else {
        total
    };
    let target_type = if by_average { "AverageValue" } else { "Value" };
    Some(fields([
        ("describedObject", reference(&value["target"])),
        ("target", target(target_type, total, average, Value::Null)),
        ("metric", identifier(value, "selector")),
    ]))
}

/// A measured metric of version 1; none if version 1 could not read it either.
pub(super) fn status_from_v1(metric: &Value) -> Option<Value> {
    from_v1(metric, |source, value| {
        let average = amount(&value["currentAverageValue"])?;
        let total = or_zero(&amount(&value["currentValue"])?);
        Some(match source {
            "object" => fields([
                ("metric", identifier(value, "selector")),
                (
                    "current",
                    fields([
                        ("value", total),
                        ("averageValue", amount(&value["averageValue"])?),
                    ]),
                ),
                ("describedObject", reference(&value["target"])),
            ]),
            "pods" => fields([
                ("metric", identifier(value, "selector")),
                ("current", fields([("averageValue", or_zero(&average))])),
            ]),
            "external" => fields([
                ("metric", identifier(value, "metricSelector")),
                (
                    "current",
                    fields([("value", total), ("averageValue", average)]),
                ),
            ]),
            _ => {
                let utilization = value["currentAverageUtilization"].clone();
                fields([
                    ("name", value["name"].clone()),
                    (
                        "current",
                        fields([
                            ("averageValue", or_zero(&average)),
                            ("averageUtilization", utilization),
                        ]),
                    ),
                    ("container", value["container"].clone()),
                ])
            }
        })
    })
}

fn to_v1(metric: &Value, convert: impl Fn(&str, &Value) -> Value) -> Value {
    let mut converted = fields([("type", metric["type"].clone())]);
    for source in SOURCES {
        if let Some(value) = metric.get(source) {
            converted.set(source, convert(source, value));
        }
    }
    converted
}

fn from_v1(metric: &Value, convert: impl Fn(&str, &Value) -> Option<Value>) -> Option<Value> {
    metric.as_map()?;
    let mut converted = fields([("type", metric["type"].clone())]);
    for source in SOURCES {
        if let Some(value) = metric.get(source).filter(|value| !value.is_null()) {
            converted.set(source, convert(source, value)?);
        }
    }
    Some(converted)
}

/// The fields that have a value, in this order.
pub(super) fn fields<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let present = fields.into_iter().filter(|(_, value)| !value.is_null());
    Value::Map(
        present
            .map(|(name, value)| (Str::from(name), value))
            .collect::<Map>(),
    )
}

fn reference(object: &Value) -> Value {
    fields([
        ("kind", object["kind"].str().into()),
        ("name", object["name"].str().into()),
        ("apiVersion", object["apiVersion"].clone()),
    ])
}

fn identifier(value: &Value, selector: &str) -> Value {
    fields([
        ("name", value["metricName"].str().into()),
        ("selector", value[selector].clone()),
    ])
}

fn target(target_type: &str, value: Value, average: Value, utilization: Value) -> Value {
    fields([
        ("type", target_type.into()),
        ("value", value),
        ("averageValue", average),
        ("averageUtilization", utilization),
    ])
}

fn or_zero(amount: &Value) -> Value {
    if amount.is_null() {
        "0".into()
    } else {
        amount.clone()
    }
}

/// A quantity as an annotation has it, in canonical form; none if it is no quantity.
pub(super) fn amount(value: &Value) -> Option<Value> {
    match value {
        Value::Null => Some(Value::Null),
        Value::String(text) => Some(quantity::canonical(text).ok()?.into()),
        Value::Int(int) => Some(int.to_string().into()),
        Value::Number(literal) => Some(quantity::canonical_number(literal).ok()?.into()),
        _ => None,
    }
}
