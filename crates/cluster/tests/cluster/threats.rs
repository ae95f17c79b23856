//! The threat model names a test for each defence, which must exist.

use std::fs;
use std::path::Path;

/// The cells of each row of the tables of threats.
fn rows(text: &str) -> Vec<Vec<String>> {
    let tables = text.split("| threat |").skip(1);
    let lines = tables.flat_map(|table| {
        table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
    });
    lines
        .map(|line| {
            line.trim_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().to_string())
                .collect()
        })
        .collect()
}

/// The tests in a cell: `file::name` in backticks.
fn tests(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`')
        .filter_map(|part| part.split_once(".rs::"))
        .collect()
}

#[test]
fn every_defence_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join("../docs/threat-model.md")).unwrap();
    let rows = rows(&text);
    assert!(rows.len() > 40, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let [threat, _, place, named] = &row[..] else {
            panic!("four cells: {row:?}")
        };
        for file in place
            .split('`')
            .filter(|part| part.ends_with(".rs") || part.ends_with('/'))
        {
            if !root.join(file).exists() {
                wrong.push(format!("{threat}: {file} does not exist"));
            }
        }
        if tests(named).is_empty() {
            wrong.push(format!("{threat}: no test"));
        }
        for (file, name) in tests(named) {
            let text = fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_default();
            if !text.contains(&format!("fn {name}(")) {
                wrong.push(format!("{threat}: {file}.rs has no {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_invariant_of_the_architecture_names_what_checks_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = fs::read_to_string(root.join("../ARCHITECTURE.md")).unwrap();
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| line.chars().count() > 120) {
        wrong.push(format!("more than 120 characters: {line}"));
    }
    let invariants: Vec<&str> = text
        .split("- **Invariant:** ")
        .skip(1)
        .map(|rest| rest.split("\n- ").next().unwrap())
        .map(|rest| rest.split("\n\n").next().unwrap())
        .collect();
    assert!(invariants.len() > 60, "{} invariants", invariants.len());
    for invariant in invariants {
        let checks = ["::", ".rs`", "benches", "clippy.toml"];
        if !checks.iter().any(|check| invariant.contains(check)) {
            wrong.push(format!("names no test: {invariant}"));
        }
        for (file, name) in tests(invariant) {
            let text = fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_default();
            if !text.contains(&format!("fn {name}(")) {
                wrong.push(format!("{file}.rs has no {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
