//! Schemas in messages: upstream's internal type, with Go's names and every field.

use mizzen_object::structural::sort;
use mizzen_value::{Map, Value};

/// The fields: `Go's name=API's name:type`, where `s` is text, `b` a truth value, `?` whatever it is, `1` a schema,
/// `n` a list of them, `m` a map of them, `i` a schema or a list, `o` a schema or a truth value, `d` a map of schemas or
/// names, `x` rules.
const FIELDS: &str = "ID=id:s Schema=$schema:s Ref=$ref:? Description=description:s Type=type:s Nullable=nullable:b \
    Format=format:s Title=title:s Default=default:? Maximum=maximum:? ExclusiveMaximum=exclusiveMaximum:b \
    Minimum=minimum:? ExclusiveMinimum=exclusiveMinimum:b MaxLength=maxLength:? MinLength=minLength:? \
    Pattern=pattern:s MaxItems=maxItems:? MinItems=minItems:? UniqueItems=uniqueItems:b MultipleOf=multipleOf:? \
    Enum=enum:? MaxProperties=maxProperties:? MinProperties=minProperties:? Required=required:? Items=items:i \
    AllOf=allOf:n OneOf=oneOf:n AnyOf=anyOf:n Not=not:1 Properties=properties:m \
    AdditionalProperties=additionalProperties:o PatternProperties=patternProperties:m Dependencies=dependencies:d \
    AdditionalItems=additionalItems:o Definitions=definitions:m ExternalDocs=externalDocs:? Example=example:? \
    XPreserveUnknownFields=x-kubernetes-preserve-unknown-fields:? \
    XEmbeddedResource=x-kubernetes-embedded-resource:b XIntOrString=x-kubernetes-int-or-string:b \
    XListMapKeys=x-kubernetes-list-map-keys:? XListType=x-kubernetes-list-type:? XMapType=x-kubernetes-map-type:? \
    XValidations=x-kubernetes-validations:x";

const RULE: &str = "Rule=rule:s Message=message:s MessageExpression=messageExpression:s Reason=reason:? FieldPath=fieldPath:s \
     OptionalOldSelf=optionalOldSelf:?";

/// The internal form of a schema.
pub(super) fn internal(schema: &Value) -> Value {
    fields(FIELDS, schema)
}

/// The internal form of an entry of `x-kubernetes-validations`.
pub(super) fn rule(rule: &Value) -> Value {
    fields(RULE, rule)
}

fn fields(fields: &str, value: &Value) -> Value {
    let one = |field: &str| {
        let (names, ty) = field.split_once(':').unwrap_or((field, "?"));
        let (go, name) = names.split_once('=').unwrap_or((names, names));

        let list = |items: &[Value], one: fn(&Value) -> Value| {
            items.iter().map(one).collect::<Vec<_>>().into()
        };
        let member = match (ty, &value[name]) {
            ("s", value) => value.str().into(),
            ("b", value) => value.bool().into(),
            (_, Value::Null) => Value::Null,
            ("1", schema) => internal(schema),
            ("n", schemas) => list(schemas.list(), internal),
            ("x", rules) => list(rules.list(), rule),
            ("m", schemas) => {
                let mut map: Map = schemas
                    .entries()
                    .map(|(name, schema)| (name, internal(schema)))
                    .collect();
                map.sort();
                map.into()
            }
            ("d", parts) => {
                let mut map: Map = parts
                    .entries()
                    .map(|(name, part)| {
                        let (schema, property) = match part {
                            Value::List(_) => (Value::Null, part.clone()),
                            Value::Map(_) => (internal(part), Value::Null),
                            // Kubernetes: anything else is nothing (apiextensions/v1/marshal.go).
                            _ => (Value::Null, Value::Null),
                        };
                        (name, pair("Schema", schema, "Property", property))
                    })
                    .collect();
                map.sort();
                map.into()
            }
            ("i", Value::List(schemas)) => pair(
                "Schema",
                Value::Null,
                "JSONSchemas",
                list(schemas, internal),
            ),
            ("i", schema) => pair("Schema", internal(schema), "JSONSchemas", Value::Null),
            ("o", Value::Bool(allows)) => pair("Allows", (*allows).into(), "Schema", Value::Null),
            ("o", schema) => pair("Allows", true.into(), "Schema", internal(schema)),
            (_, value) => sorted(value),
        };
        (go.to_string(), member)
    };
    fields.split_whitespace().map(one).collect::<Map>().into()
}

/// A loose value as Go prints it: the keys of maps sorted.
pub(super) fn sorted(value: &Value) -> Value {
    let mut value = value.clone();
    sort(&mut value);
    value
}

fn pair(first: &str, one: Value, second: &str, other: Value) -> Value {
    [(first, one), (second, other)]
        .into_iter()
        .collect::<Map>()
        .into()
}
