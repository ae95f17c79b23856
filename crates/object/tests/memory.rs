//! A cluster may have thousands of definitions; most of their text is documentation, and none of it
//! is kept.

use mizzen_object::structural::Structural;
use mizzen_value::{Map, Value, json, value};

const DEFINITIONS: usize = 2_000;
const MEGABYTE: usize = 1 << 20;

/// A schema of some 30 KB, as operators have them: nested objects, descriptions, a few constraints
/// and enums.
fn schema() -> Value {
    let field = |index: usize| {
        let mut field = value!({"type": "string", "description": (format!("Field number {index} says how the part \
            that it belongs to behaves when nobody has said otherwise, and what happens to the rest."))});
        match index % 5 {
            0 => field.set("maxLength", 253),
            1 => field.set("enum", value!(["Always", "Never"])),
            2 => field.set("default", "Always"),
            _ => {}
        }
        (format!("fieldNumber{index}"), field)
    };
    let object = |fields: Map| {
        let mut object = value!({"type": "object", "description": "A part of the whole.", "required": ["fieldNumber0"]});
        object.set("properties", fields);
        object
    };
    let part = |index: usize| (format!("part{index}"), object((0..12).map(field).collect()));
    object((0..11).map(part).collect())
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

#[test]
fn thousands_of_definitions_fit_into_little_memory() {
    let schema = schema();
    let text = json::to_string(&schema).len();
    assert!((25_000..35_000).contains(&text), "{text}");
    let before = resident();
    let compiled: Vec<Structural> = (0..DEFINITIONS)
        .map(|_| Structural::compile(&schema, false))
        .collect();
    let used = resident().saturating_sub(before);
    println!("{} definitions: {} MB", compiled.len(), used / MEGABYTE);
    assert!(used < 100 * MEGABYTE, "{} MB", used / MEGABYTE);
}
