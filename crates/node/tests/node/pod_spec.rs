//! Does `docs/pod-spec.md` have every field of a pod, and do the tests that it names have the fields?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use mizzen_object::schema::{Struct, StructField};

/// What a row may say first.
const ANSWERS: [&str; 5] = [
    "works",
    "partly: ",
    "refused: ",
    "another component: ",
    "not on this platform: ",
];
/// Types that have the fields of another section, too.
const OWN_FIELDS: [(&str, &str); 3] = [
    ("EphemeralContainer", "Container"),
    ("Probe", "ProbeHandler"),
    ("Volume", "VolumeSource"),
];
/// Types without a section, though a row of them works, and why.
const OTHERS: [(&str, &str); 3] = [
    (
        "Affinity",
        "the scheduler's; the node checks what is required of nodes as a whole",
    ),
    (
        "Toleration",
        "the scheduler's; the node checks all of NoExecute as a whole",
    ),
    (
        "PersistentVolumeClaimTemplate",
        "the ephemeral-volume controller makes a claim of it, which the node reads",
    ),
];

/// Rows of the page: field, answer and test.
type Rows = Vec<[String; 3]>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of each section.
fn sections(page: &str) -> BTreeMap<String, Rows> {
    let sections = page.split("\n## ").skip(1);
    let named = sections.map(|section| (section.lines().next().unwrap().to_owned(), rows(section)));
    let named: Vec<(String, Rows)> = named.collect();
    let n_sections = named.len();
    let sections = BTreeMap::from_iter(named);
    assert_eq!(sections.len(), n_sections, "a section is there twice");
    sections
}

fn rows(section: &str) -> Rows {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        [cells[1], cells[2], cells[3]].map(|cell| cell.trim_matches('`').to_owned())
    });
    cells.collect()
}

/// The functions of a file by name, as rustfmt writes them.
fn functions(file: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut functions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut lines = file.lines();
    while let Some(first) = lines.next() {
        let Some((before, after)) = first.split_once("fn ") else {
            continue;
        };
        let is_qualifier = |word: &str| {
            matches!(
                word,
                "async" | "const" | "pub" | "pub(crate)" | "pub(super)"
            )
        };
        let is_one_line = first.ends_with([';', '}']);
        if !before.split_whitespace().all(is_qualifier) || is_one_line {
            continue;
        }
        let indentation = first.len() - first.trim_start().len();
        let end = format!("{}}}", " ".repeat(indentation));
        let body = lines.by_ref().take_while(|line| *line != end);
        let name = after.split(['(', '<']).next().unwrap_or_default();
        functions.entry(name).or_default().extend(body);
    }
    functions
}

/// The words of a test and of the functions of its file that it calls; `None` if there is no such test.
fn words(place: &str) -> Option<BTreeSet<String>> {
    let (file, test) = place.split_once("::")?;
    let text = fs::read_to_string(root().join("crates").join(file)).ok()?;
    let functions = functions(&text);
    functions.get(test)?;
    let mut words = BTreeSet::new();
    let mut open = vec![test];
    while let Some(function) = open.pop() {
        for line in functions.get(function).into_iter().flatten() {
            for word in line.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
                if words.insert(word.to_owned()) {
                    open.push(word);
                }
            }
        }
    }
    Some(words)
}

/// The struct that a field has, if it has one: itself, in a list or in a map.
fn struct_of(field: &StructField) -> Option<&Arc<Struct>> {
    let mut ty = &field.ty;
    while let Some(item) = ty.item() {
        ty = item;
    }
    ty.as_struct()
}

/// Checks a section, and returns the types below its rows that work.
fn check(name: &str, own: &Struct, inlined: Option<&Struct>, rows: &[[String; 3]]) -> Vec<String> {
    let is_inlined = |field: &str| inlined.is_some_and(|it| it.field(field).is_some());
    let fields = own.fields().iter().map(|field| field.name.to_string());
    let fields: BTreeSet<String> = fields.filter(|field| !is_inlined(field)).collect();
    let known: BTreeSet<String> = rows.iter().map(|[field, _, _]| field.clone()).collect();
    assert_eq!(known, fields, "{name}");
    assert_eq!(known.len(), rows.len(), "{name} has a field twice");
    let mut below = Vec::new();
    for [field, answer, test] in rows {
        let place = format!("{name}.{field}");
        let starts = |answers: &[&str]| answers.iter().any(|it| answer.starts_with(it));
        assert!(starts(&ANSWERS), "{place}: {answer}");
        if !test.is_empty() || starts(&["works", "refused: "]) {
            let words = words(test).unwrap_or_else(|| panic!("{place}: no test {test:?}"));
            assert!(words.contains(field), "{place}: not in {test:?}");
        }
        if starts(&["works", "partly: "]) {
            let below_it = own.field(field).and_then(struct_of);
            below.extend(below_it.map(|it| it.name.to_string()));
        }
    }
    below
}

#[test]
fn every_field_of_a_pod_has_a_row_and_what_works_has_a_test() {
    let page = fs::read_to_string(root().join("docs/pod-spec.md")).unwrap();
    let sections = sections(&page);
    let catalog = mizzen_kinds::catalog();
    let type_of = |name: &str| {
        let found = catalog
            .schemas
            .types
            .get(format!("core/v1.{name}").as_str());
        found.unwrap_or_else(|| panic!("{name} is no type"))
    };
    let mut reached = BTreeSet::new();
    let mut open = vec!["PodSpec".to_owned()];
    while let Some(name) = open.pop() {
        if reached.contains(&name) || OTHERS.iter().any(|(other, _)| *other == name) {
            continue;
        }
        let rows = sections.get(&name);
        let rows = rows.unwrap_or_else(|| panic!("no section {name}"));
        let inlined = OWN_FIELDS.iter().find(|(holder, _)| *holder == name);
        let inlined = inlined.map(|(_, inlined)| *inlined);
        let struct_of_inlined = inlined.map(|inlined| &**type_of(inlined));
        open.extend(check(&name, type_of(&name), struct_of_inlined, rows));
        open.extend(inlined.map(str::to_owned));
        reached.insert(name);
    }
    let known: BTreeSet<String> = sections.into_keys().collect();
    assert_eq!(known, reached, "types of which no field of a pod works");
}
