//! Prints a pod template as Go's spew does:
//! `(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) …`.
//!
//! Every field is printed with name, type and value; absent fields are Go's zero values.
//! `data/pod-template.types` has the structs (`tools/condense_go_types.py` writes it and documents
//! the format).
//!
//! Invariant: an empty list or map prints as nil, because objects reach Kubernetes' controllers as
//! protobuf, which does not distinguish them.

use std::collections::HashMap;
use std::sync::LazyLock;

use mizzen_value::{Value, json, time};

use super::quantity;

/// Prints a pod template.
pub(super) fn template(template: &Value) -> String {
    let mut printer = SpewPrinter(String::with_capacity(8 * 1024));
    printer.print("v1.PodTemplateSpec", template, TypePrinting::Shown);
    printer.0
}

/// Whether a value's type is printed: it is in structs, but not in lists, maps and behind pointers.
#[derive(Clone, Copy, PartialEq)]
enum TypePrinting {
    Shown,
    Known,
}

enum GoType {
    Struct(Vec<GoField>),
    /// A named type of another type.
    Alias(&'static str),
}

struct GoField {
    name: &'static str,
    /// The JSON name; none for an embedded struct.
    json: Option<&'static str>,
    kind: &'static str,
}

static GO_TYPES: LazyLock<HashMap<&'static str, GoType>> = LazyLock::new(|| {
    let mut types = HashMap::new();
    let mut current = "";
    for line in include_str!("../../../data/pod-template.types").lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name] => {
                current = name;
                types.insert(name, GoType::Struct(Vec::new()));
            }
            [name, "=", other] => drop(types.insert(name, GoType::Alias(other))),
            [name, json, kind] => {
                let json = Some(json).filter(|json| *json != "-");
                if let Some(GoType::Struct(fields)) = types.get_mut(current) {
                    fields.push(GoField { name, json, kind });
                }
            }
            _ => unreachable!("the file is ours"),
        }
    }
    types
});

/// Prints values as Go's spew does.
struct SpewPrinter(String);

impl SpewPrinter {
    fn print(&mut self, kind: &'static str, value: &Value, types: TypePrinting) {
        if types == TypePrinting::Shown {
            self.0 += &format!("({kind})");
        }
        let map_item = kind
            .strip_prefix("map[")
            .and_then(|kind| kind.split_once(']'));
        if let Some(target) = kind.strip_prefix('*') {
            match value.is_null() {
                true => self.0 += "<nil>",
                false => self.print(target, value, TypePrinting::Known),
            }
        } else if let Some(item) = kind.strip_prefix("[]") {
            match value.list().is_empty() {
                true => self.0 += "<nil>",
                false => self.print_list(item, value),
            }
        } else if let Some((_, item)) = map_item {
            match value.is_empty() {
                true => self.0 += "<nil>",
                false => self.print_map(item, value),
            }
        } else {
            match GO_TYPES.get(kind) {
                Some(GoType::Alias(other)) => self.print(other, value, TypePrinting::Known),
                Some(GoType::Struct(fields)) => self.print_struct(fields, value),
                None => self.print_leaf(kind, value),
            }
        }
    }

    fn print_struct(&mut self, fields: &'static [GoField], value: &Value) {
        self.0.push('{');
        for (at, field) in fields.iter().enumerate() {
            self.0 += if at > 0 { " " } else { "" };
            self.0 += field.name;
            self.0.push(':');
            let value = field.json.map_or(value, |json| &value[json]);
            self.print(field.kind, value, TypePrinting::Shown);
        }
        self.0.push('}');
    }

    fn print_list(&mut self, kind: &'static str, list: &Value) {
        self.0.push('[');
        for (at, item) in list.list().iter().enumerate() {
            self.0 += if at > 0 { " " } else { "" };
            self.print(kind, item, TypePrinting::Known);
        }
        self.0.push(']');
    }

    fn print_map(&mut self, kind: &'static str, map: &Value) {
        let mut members: Vec<(&str, &Value)> = map.entries().collect();
        members.sort_by_key(|(key, _)| *key);
        self.0 += "map[";
        for (at, (key, item)) in members.into_iter().enumerate() {
            self.0 += if at > 0 { " " } else { "" };
            self.0 += key;
            self.0.push(':');
            self.print(kind, item, TypePrinting::Known);
        }
        self.0.push(']');
    }

    fn print_leaf(&mut self, kind: &str, value: &Value) {
        match kind {
            "string" => self.0 += value.str(),
            "bool" => self.0 += if value.bool() { "true" } else { "false" },
            "resource.Quantity" => quantity::print(&mut self.0, value.str()),
            "intstr.IntOrString" => {
                let kind = i32::from(value.as_str().is_some());
                let (int, text) = (value.int(), value.str());
                self.0 += &format!(
                    "{{Type:(intstr.Type){kind} IntVal:(int32){int} StrVal:(string){text}}}"
                );
            }
            "v1.Time" => self.print_time(value.str()),
            "v1.FieldsV1" => {
                let text = json::to_string(value);
                let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
                self.0 += &format!("{{Raw:([]uint8)[{}]}}", bytes.join(" "));
            }
            _ => self.0 += &value.int().to_string(),
        }
    }

    /// Go prints the location of a time that is set, here that of a machine without a time zone.
    /// Templates have no times unless a user writes them.
    fn print_time(&mut self, text: &str) {
        /// Seconds from Go's year 1 to 1970.
        const YEAR_ONE: i64 = 62_135_596_800;
        const PLACE: &str = "{name:(string)UTC zone:([]time.zone)<nil> tx:([]time.zoneTrans)<nil> extend:(string) \
                             cacheStart:(int64)0 cacheEnd:(int64)0 cacheZone:(*time.zone)<nil>}";
        let (seconds, place) = match time::to_unix(text) {
            Some(seconds) => (seconds + YEAR_ONE, PLACE),
            None => (0, "<nil>"),
        };
        self.0 += &format!(
            "{{Time:(time.Time){{wall:(uint64)0 ext:(int64){seconds} loc:(*time.Location){place}}}}}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &'static str, value: &str, expect: &str) {
        let mut printer = SpewPrinter(String::new());
        let value = json::parse(value.as_bytes()).expect("JSON");
        printer.print(kind, &value, TypePrinting::Shown);
        assert_eq!(printer.0, expect);
    }

    #[test]
    fn every_named_type_is_defined() {
        let leaves = [
            "string",
            "bool",
            "int32",
            "int64",
            "resource.Quantity",
            "intstr.IntOrString",
            "v1.Time",
            "v1.FieldsV1",
        ];
        let kinds = GO_TYPES.values().flat_map(|shape| match shape {
            GoType::Struct(fields) => fields.iter().map(|field| field.kind).collect(),
            GoType::Alias(other) => vec![*other],
        });
        for kind in kinds {
            let name = kind.rsplit(['*', ']']).next().unwrap_or_default();
            assert!(
                GO_TYPES.contains_key(name) || leaves.contains(&name),
                "{kind}"
            );
        }
    }

    #[test]
    fn pointers_show_what_they_point_to() {
        check("*int64", "30", "(*int64)30");
        check("*int64", "null", "(*int64)<nil>");
        check("*bool", "false", "(*bool)false");
        check(
            "*v1.PodOS",
            r#"{"name": "linux"}"#,
            "(*v1.PodOS){Name:(v1.OSName)linux}",
        );
    }

    #[test]
    fn a_pointer_to_an_empty_struct_is_not_none() {
        check(
            "*v1.EmptyDirVolumeSource",
            "{}",
            "(*v1.EmptyDirVolumeSource){Medium:(v1.StorageMedium) SizeLimit:(*resource.Quantity)<nil>}",
        );
    }

    #[test]
    fn maps_are_printed_in_the_order_of_their_keys() {
        check(
            "map[string]string",
            r#"{"b": "1", "a": "2"}"#,
            "(map[string]string)map[a:2 b:1]",
        );
        check("map[string]string", "{}", "(map[string]string)<nil>");
    }

    #[test]
    fn lists_leave_out_the_types_of_their_items() {
        check("[]int64", "[1, 2]", "([]int64)[1 2]");
        check("[]v1.Capability", r#"["A", "B"]"#, "([]v1.Capability)[A B]");
        check(
            "[]v1.Sysctl",
            r#"[{"name": "a", "value": "1"}]"#,
            "([]v1.Sysctl)[{Name:(string)a Value:(string)1}]",
        );
        check("[]string", "null", "([]string)<nil>");
    }

    #[test]
    fn embedded_structs_are_fields_of_their_own() {
        check(
            "v1.ConfigMapKeySelector",
            r#"{"name": "settings", "key": "colour"}"#,
            "(v1.ConfigMapKeySelector){LocalObjectReference:(v1.LocalObjectReference){Name:(string)settings} \
             Key:(string)colour Optional:(*bool)<nil>}",
        );
    }

    #[test]
    fn a_port_is_a_number_or_a_name() {
        let port = |inside: &str| {
            format!("(v1.TCPSocketAction){{Port:(intstr.IntOrString){{{inside}}} Host:(string)}}")
        };
        check(
            "v1.TCPSocketAction",
            r#"{"port": 80}"#,
            &port("Type:(intstr.Type)0 IntVal:(int32)80 StrVal:(string)"),
        );
        check(
            "v1.TCPSocketAction",
            r#"{"port": "web"}"#,
            &port("Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)web"),
        );
    }

    #[test]
    fn a_list_of_resources_is_a_map_of_amounts() {
        check(
            "v1.ResourceList",
            r#"{"memory": "1Gi", "cpu": "100m"}"#,
            "(v1.ResourceList)map[cpu:{i:(resource.int64Amount){value:(int64)100 scale:(resource.Scale)-3} \
             d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)100m Format:(resource.Format)DecimalSI} \
             memory:{i:(resource.int64Amount){value:(int64)1073741824 scale:(resource.Scale)0} \
             d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)1Gi Format:(resource.Format)BinarySI}]",
        );
    }

    #[test]
    fn a_time_that_is_not_set_is_zero() {
        check(
            "v1.Time",
            "null",
            "(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}",
        );
        check("*v1.Time", "null", "(*v1.Time)<nil>");
    }

    #[test]
    fn an_amount_that_is_not_there_is_zero() {
        check(
            "v1.ResourceFieldSelector",
            r#"{"resource": "limits.cpu"}"#,
            "(v1.ResourceFieldSelector){ContainerName:(string) Resource:(string)limits.cpu \
             Divisor:(resource.Quantity){i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} \
             d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string)0 Format:(resource.Format)DecimalSI}}",
        );
    }
}
