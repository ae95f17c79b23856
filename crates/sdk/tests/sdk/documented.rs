//! Does every public item have an example?
//!
//! Of the SDK, of `mizzen-testing`, and of what authors of scheduler plugins and API servers use.
//! The sources are read as text. A type, trait or free function stands at the left margin and has an
//! example in its own doc comment. A method is called in the example of some item of its crate.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories below `crates` whose public items have examples, and the least number of their types,
/// traits and functions.
const DOCUMENTED: &[(&str, usize)] = &[
    ("apiserver/src/extend", 18),
    ("scheduler/src/framework", 25),
    ("sdk-derive/src", 2),
    ("sdk/src", 200),
    ("testing/src", 13),
];

/// Files whose items have no example, and why.
const EXEMPT: &[(&str, &str)] = &[("convert/derived.rs", "hidden: only derived code calls it")];

/// Methods that no example calls, and why.
const EXEMPT_METHODS: &[(&str, &str)] = &[
    (
        "built_in",
        "only mizzen-controlplane has kinds of Kubernetes",
    ),
    ("connection", "only kinds of Kubernetes have a proxy"),
    ("write_strategy", "authors have write_hook"),
];

/// A public item of a source file.
struct PublicItem {
    line: usize,
    name: String,
    has_example: bool,
}

/// The public types, traits and free functions of a source, up to its tests.
fn public_items(source: &str) -> Vec<PublicItem> {
    let (mut items, mut has_example) = (Vec::new(), false);
    for (line, text) in source.lines().enumerate() {
        if text == "#[cfg(test)]" {
            break;
        }
        if let Some(doc) = text.strip_prefix("///") {
            has_example |= doc.trim_start().starts_with("```");
            continue;
        }
        // Attributes stand between a doc comment and its item, some of them on several lines.
        if text.starts_with("#[") || text.starts_with([' ', ')']) {
            continue;
        }
        let mut words = text.split([' ', '<', '(', '{', ';', ':', '=']);
        if words.next() == Some("pub") {
            let mut words = words.skip_while(|word| ["async", "const", "unsafe"].contains(word));
            let kind = words.next().unwrap_or_default();
            if ["struct", "enum", "trait", "fn", "type"].contains(&kind) {
                let name = words.next().unwrap_or_default().to_owned();
                items.push(PublicItem {
                    line: line + 1,
                    name,
                    has_example,
                });
            }
        }
        has_example = false;
    }
    items
}

/// The code of all examples of a source.
fn examples(source: &str) -> String {
    let (mut code, mut is_inside) = (String::new(), false);
    for text in source.lines().map(str::trim_start) {
        let doc = text
            .strip_prefix("///")
            .or_else(|| text.strip_prefix("//!"));
        match doc.map(str::trim_start) {
            Some(fence) if fence.starts_with("```") => is_inside = !is_inside,
            Some(line) if is_inside => {
                code.push_str(line);
                code.push('\n');
            }
            Some(_) => {}
            None => is_inside = false,
        }
    }
    code
}

/// The names of the public methods of a source, up to its tests, without hidden ones.
fn public_methods(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines().take_while(|text| *text != "#[cfg(test)]");
    let mut is_hidden = false;
    lines.filter_map(move |text| {
        let was_hidden = std::mem::replace(&mut is_hidden, text == "    #[doc(hidden)]");
        let rest = text.strip_prefix("    pub ").filter(|_| !was_hidden)?;
        let rest = rest
            .trim_start_matches("const ")
            .trim_start_matches("async ");
        rest.strip_prefix("fn ")?.split(['(', '<']).next()
    })
}

/// Whether code calls a function of this name.
fn calls(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = &code[at + name.len()..];
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
            && (after.starts_with('(') || after.starts_with("::<"))
    })
}

/// All Rust files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The directory of all crates.
fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn every_public_type_trait_and_function_has_an_example() {
    let mut missing = Vec::new();
    for (directory, least) in DOCUMENTED {
        let (root, mut n_items) = (crates().join(directory), 0);
        for file in sources(&root) {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
            if EXEMPT.iter().any(|(exempt, _)| *exempt == name) {
                continue;
            }
            for item in public_items(&fs::read_to_string(&file).unwrap()) {
                n_items += 1;
                if !item.has_example {
                    missing.push(format!("{directory}/{name}:{} {}", item.line, item.name));
                }
            }
        }
        assert!(
            n_items >= *least,
            "only {n_items} public items were found in {directory}"
        );
    }
    assert!(missing.is_empty(), "without an example: {missing:#?}");
}

#[test]
fn every_public_method_is_called_in_an_example() {
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    let mut missing = Vec::new();
    for (directory, _) in DOCUMENTED {
        let crate_directory = crates().join(directory.split('/').next().unwrap());
        let all = sources(&crate_directory.join("src")).into_iter().map(read);
        let code: String = all.map(|source| examples(&source)).collect();
        for source in sources(&crates().join(directory)).into_iter().map(read) {
            let not_called = public_methods(&source).filter(|name| !calls(&code, name));
            let not_called =
                not_called.filter(|name| !EXEMPT_METHODS.iter().any(|(exempt, _)| exempt == name));
            missing.extend(not_called.map(|name| format!("{directory}: {name}")));
        }
    }
    assert!(missing.is_empty(), "not in an example: {missing:#?}");
}

#[test]
fn an_item_without_an_example_is_found() {
    let source = "/// Has one.\n///\n/// ```\n/// ```\n#[derive(\n    Debug\n)]\npub struct Shown<K>(K);\n\
                  /// Has none.\npub async fn hidden() {\n    pub fn inner() {}\n}\n\
                  pub(crate) fn private() {}\npub const NAME: &str = \"\";\n";
    let found: Vec<_> = public_items(source)
        .into_iter()
        .map(|item| (item.name, item.has_example))
        .collect();
    assert_eq!(
        found,
        [("Shown".to_owned(), true), ("hidden".to_owned(), false)]
    );
}

#[test]
fn a_method_that_no_example_calls_is_found() {
    let source = "/// ```\n/// one.called();\n/// other.parsed::<u8>();\n/// ```\nimpl One {\n    \
                  pub async fn called(&self) {}\n    pub fn parsed<T>() {}\n    pub fn call(&self) {}\n    \
                  #[doc(hidden)]\n    pub fn hidden() {}\n}\n";
    let code = examples(source);
    let found: Vec<_> = public_methods(source)
        .map(|name| (name, calls(&code, name)))
        .collect();
    assert_eq!(found, [("called", true), ("parsed", true), ("call", false)]);
}
