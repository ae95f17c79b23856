//! Does `docs/pod-spec.md` have every field of a pod, and do the tests that it names exist?

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// What a row may say first.
const ANSWERS: [&str; 5] = [
    "works",
    "partly: ",
    "refused: ",
    "another component: ",
    "not on this platform: ",
];
/// Types that have the fields of another section, too.
const OWN_FIELDS: [(&str, &str); 2] = [
    ("EphemeralContainer", "Container"),
    ("Probe", "ProbeHandler"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of a section: field, answer and test.
fn rows(section: &str) -> Vec<[String; 3]> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        [cells[1], cells[2], cells[3]].map(|cell| cell.trim_matches('`').to_owned())
    });
    cells.collect()
}

fn has_test(place: &str) -> bool {
    let Some((file, test)) = place.split_once("::") else {
        return false;
    };
    let text = fs::read_to_string(root().join("crates").join(file)).unwrap_or_default();
    text.contains(&format!("fn {test}("))
}

#[test]
fn every_field_of_a_pod_has_a_row_and_what_works_has_a_test() {
    let page = fs::read_to_string(root().join("docs/pod-spec.md")).unwrap();
    let catalog = mizzen_kinds::catalog();
    let type_of = |name: &str| {
        catalog
            .schemas
            .types
            .get(format!("core/v1.{name}").as_str())
            .cloned()
    };
    let mut sections = BTreeSet::new();
    for section in page.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap();
        let own = type_of(name).unwrap_or_else(|| panic!("{name} is no type"));
        let shared = OWN_FIELDS.iter().find(|(own, _)| *own == name);
        let shared = shared.and_then(|(_, other)| type_of(other));
        let is_shared = |field: &str| shared.as_ref().is_some_and(|it| it.field(field).is_some());
        let fields = own.fields().iter().map(|field| field.name.to_string());
        let fields: BTreeSet<String> = fields.filter(|field| !is_shared(field)).collect();
        let rows = rows(section);
        let known: BTreeSet<String> = rows.iter().map(|[field, _, _]| field.clone()).collect();
        assert_eq!(known, fields, "{name}");
        assert_eq!(known.len(), rows.len(), "{name} has a field twice");
        for [field, answer, test] in rows {
            let place = format!("{name}.{field}");
            assert!(
                ANSWERS.iter().any(|it| answer.starts_with(it)),
                "{place}: {answer}"
            );
            let needs_test = answer.starts_with("works") || answer.starts_with("refused");
            assert!(
                has_test(&test) || !needs_test && test.is_empty(),
                "{place}: no test {test:?}"
            );
        }
        sections.insert(name.to_owned());
    }
    for name in [
        "PodSpec",
        "Container",
        "EphemeralContainer",
        "SecurityContext",
        "PodSecurityContext",
        "PodDNSConfig",
        "ContainerPort",
        "ResourceRequirements",
        "VolumeSource",
        "KeyToPath",
        "VolumeProjection",
    ] {
        assert!(sections.contains(name), "no section {name}");
    }
}
