//! Is every code block of the handbook run or compiled, and does every link lead somewhere?
//!
//! `docs/` is an mdBook that is read as plain Markdown, too. A block is named by the word after its fence:
//!
//! | block | checked by |
//! |---|---|
//! | `sh` | `kubectl/handbook.rs` runs it with the real binary and kubectl; `sh fails`: its last command must fail |
//! | `text` | the same: it is the output of the `sh` block before it |
//! | `yaml`, first line `# FILE` | the same: it is a file that a later `sh` block uses |
//! | `rust` | a doc test of `examples/handbook`, or, as `rust,ignore`, an excerpt of a source file |
//! | `python`, `js`, `json`, `go` | `packages.rs`: it is an excerpt of a suite that is run there |
//! | any, after `<!-- run with PROGRAM -->` | the same, where the program is installed |
//! | any, after `<!-- not run: REASON -->` | nothing |

mod annotations;
mod flags;
mod links;
mod pictures;

use std::fs;
use std::path::{Path, PathBuf};

/// Pages whose blocks another test runs, and the file of that test, which names the page.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    (
        "annotations.md",
        "crates/cluster/tests/cluster/handbook/annotations.rs",
    ),
    (
        "flag-reference.md",
        "crates/cluster/tests/cluster/handbook/flags.rs",
    ),
];

/// Blocks in other languages, the directories of the suites of which they are excerpts, and the extensions of the files.
const SUITES: &[(&str, &str, &str)] = &[
    ("python", "packaging/python/tests", "py"),
    ("js", "packaging/npm/tests", "js"),
    ("json", "packaging/npm/tests", "json"),
    ("go", "packaging/go/mizzen", "go"),
];

/// A page of `docs/`.
pub(crate) struct Page {
    /// Its path in `docs/`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A fenced code block.
pub(crate) struct Block {
    /// The number of the line of its fence.
    pub(crate) line: usize,
    /// The words after the fence.
    pub(crate) info: String,
    pub(crate) text: String,
    /// Why it is not run.
    pub(crate) not_run: Option<String>,
    /// The program without which it is not run.
    pub(crate) program: Option<String>,
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().nth(2);
    root.expect("the package is in `crates`")
}

/// All files below a directory with this extension, sorted.
pub(crate) fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path, extension)),
            false if path.extension().is_some_and(|found| found == extension) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// All pages of `docs/`.
pub(crate) fn pages() -> Vec<Page> {
    let docs = root().join("docs");
    let read = |path: PathBuf| Page {
        name: path.strip_prefix(&docs).unwrap().display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    files(&docs, "md").into_iter().map(read).collect()
}

/// A page is what was generated. With `UPDATE_EXPECT=1` it is written.
#[track_caller]
fn check_generated(page: &str, text: &str) {
    let file = root().join("docs").join(page);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, text).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == text,
        "docs/{page} is out of date: run the test with UPDATE_EXPECT=1"
    );
}

impl Page {
    /// Its code blocks, in order.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_inside = false;
        let (mut not_run, mut program) = (None, None);
        for (n_before, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().strip_prefix("```");
            match (is_inside, fence) {
                (false, Some(info)) => {
                    let (line, info, not_run) = (n_before + 1, info.to_owned(), not_run.take());
                    let text = String::new();
                    blocks.push(Block {
                        line,
                        info,
                        text,
                        not_run,
                        program: program.take(),
                    });
                    is_inside = true;
                }
                (true, Some(_)) => is_inside = false,
                (true, None) => {
                    let block = blocks.last_mut().expect("a fence was opened");
                    block.text += line;
                    block.text.push('\n');
                }
                (false, None) => {
                    let remark = line.trim().strip_prefix("<!-- ");
                    let remark = remark.and_then(|rest| rest.strip_suffix(" -->"));
                    if let Some(reason) = remark.and_then(|text| text.strip_prefix("not run: ")) {
                        not_run = Some(reason.to_owned());
                    }
                    if let Some(name) = remark.and_then(|text| text.strip_prefix("run with ")) {
                        program = Some(name.to_owned());
                    }
                }
            }
        }
        assert!(!is_inside, "{}: the last fence is not closed", self.name);
        blocks
    }

    /// Whether another test runs its blocks.
    fn is_run_elsewhere(&self) -> bool {
        RUN_ELSEWHERE.iter().any(|(page, _)| *page == self.name)
    }
}

impl Block {
    /// The file that a block is, by its first line: `# FILE`.
    pub(crate) fn file_name(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?;
        name.ends_with(".yaml").then_some(name)
    }
}

/// What is wrong with a block of `page`, after the blocks `before` it and before those `after` it.
fn fault(page: &Page, before: &[Block], block: &Block, after: &[Block]) -> Option<String> {
    if block
        .not_run
        .as_ref()
        .is_some_and(|reason| !reason.is_empty())
    {
        return None;
    }
    let previous = before.last().map_or("", |block| &block.info);
    let fault = match &*block.info {
        "sh" | "sh fails" if block.text.trim_end().ends_with('&') => {
            let is_awaited = after.first().is_some_and(|next| next.info == "text");
            (!is_awaited).then_some(
                "a program in the background needs the text that it prints when it is ready",
            )
        }
        "sh" | "sh fails" => None,
        "text" if block.text.trim() == "…" => Some("it stands for any output"),
        "text" => (!previous.starts_with("sh")).then_some("no sh block is before this output"),
        "yaml" => match block.file_name() {
            None => Some("its first line must name its file: # FILE.yaml"),
            Some(file) => {
                // By its name, or by that of its directory, as for kustomize.
                let names: Vec<&str> = Path::new(file)
                    .ancestors()
                    .filter_map(|path| path.to_str().filter(|name| !name.is_empty()))
                    .collect();
                let mut later = after.iter().filter(|block| block.info.starts_with("sh"));
                let is_used = later.any(|block| names.iter().any(|name| block.text.contains(name)));
                (!is_used).then_some("no later sh block uses this file")
            }
        },
        "rust" | "rust,no_run" => {
            (!is_doc_test(page)).then_some("examples/handbook/src/lib.rs does not include its page")
        }
        "rust,ignore" => {
            let mut sources = files(&root().join("examples"), "rs");
            sources.extend(files(&root().join("crates"), "rs"));
            (!is_excerpt(&block.text, &sources)).then_some("no source file has these lines")
        }
        language => match SUITES.iter().find(|(name, ..)| *name == language) {
            None => Some("no test runs such a block"),
            Some((_, directory, extension)) => {
                let sources = files(&root().join(directory), extension);
                (!is_excerpt(&block.text, &sources))
                    .then_some("no file of the suite has these lines")
            }
        },
    };
    fault.map(|fault| format!("docs/{}:{}: {}: {fault}", page.name, block.line, block.info))
}

/// Whether the Rust blocks of a page are doc tests.
fn is_doc_test(page: &Page) -> bool {
    let library = fs::read_to_string(root().join("examples/handbook/src/lib.rs")).unwrap();
    library.contains(&format!("/docs/{}\"", page.name))
}

/// Whether one of the source files has these lines, in order. `…`, or a comment with it, stands for lines that are left out.
fn is_excerpt(text: &str, sources: &[PathBuf]) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    };
    let lines = plain(text);
    let is_omission = |line: &String| matches!(line.as_str(), "…" | "// …" | "# …");
    let parts: Vec<&[String]> = lines
        .split(is_omission)
        .filter(|part| !part.is_empty())
        .collect();
    let has_parts = |source: &PathBuf| {
        let source = plain(&fs::read_to_string(source).unwrap());
        let mut rest = source.as_slice();
        parts.iter().all(|part| {
            let found = rest.windows(part.len()).position(|lines| lines == *part);
            if let Some(start) = found {
                rest = &rest[start + part.len()..];
            }
            found.is_some()
        })
    };
    !parts.is_empty() && sources.iter().any(has_parts)
}

#[test]
fn every_code_block_is_run_or_compiled() {
    let mut faults = Vec::new();
    let mut n_blocks = 0;
    for page in pages().iter().filter(|page| !page.is_run_elsewhere()) {
        let blocks = page.blocks();
        n_blocks += blocks.len();
        for (i, block) in blocks.iter().enumerate() {
            faults.extend(fault(page, &blocks[..i], block, &blocks[i + 1..]));
        }
    }
    assert!(n_blocks > 100, "{n_blocks} blocks");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_code_block_is_hidden_from_the_tests() {
    let mut indented = Vec::new();
    for page in pages().iter().filter(|page| !page.is_run_elsewhere()) {
        let mut is_inside = false;
        for (n_before, line) in page.text.lines().enumerate() {
            is_inside ^= line.trim_start().starts_with("```");
            if !is_inside && line.starts_with("    ") {
                indented.push(format!("docs/{}:{}: use a fence", page.name, n_before + 1));
            }
        }
    }
    assert!(indented.is_empty(), "{}", indented.join("\n"));
}

#[test]
fn a_page_that_another_test_runs_is_named_there() {
    for (page, test) in RUN_ELSEWHERE {
        assert!(
            root().join("docs").join(page).exists(),
            "there is no docs/{page}"
        );
        let text = fs::read_to_string(root().join(test)).unwrap_or_default();
        assert!(text.contains(page), "{test} does not name {page}");
    }
}

#[test]
fn the_suites_of_excerpts_are_run() {
    let test = root().join("crates/cluster/tests/cluster/packages.rs");
    let test = fs::read_to_string(test).unwrap();
    for (language, directory, extension) in SUITES {
        let suite = directory.strip_prefix("packaging/").unwrap();
        assert!(
            test.contains(&format!("join(\"{suite}\")")),
            "packages.rs does not run {suite}"
        );
        let sources = files(&root().join(directory), extension);
        assert!(!sources.is_empty(), "{directory} has no {language}");
    }
}

#[test]
fn a_block_of_an_unknown_kind_is_reported() {
    let check = |text: &str, expected: &str| {
        let page = Page {
            name: "page.md".into(),
            text: text.into(),
        };
        let blocks = page.blocks();
        let faults = (0..blocks.len())
            .filter_map(|i| fault(&page, &blocks[..i], &blocks[i], &blocks[i + 1..]));
        let faults: Vec<String> = faults.collect();
        assert_eq!(faults.join("; "), expected, "{text}");
    };
    check(
        "```sh\nkubectl get pods\n```\n\n```text\nNo resources found\n```\n",
        "",
    );
    check(
        "```java\nclass Main {}\n```",
        "docs/page.md:1: java: no test runs such a block",
    );
    check(
        "<!-- not run: needs Java -->\n```java\nclass Main {}\n```",
        "",
    );
    check(
        "```go\nfunc TestMain(m *testing.M) {\n\t// …\n\tos.Exit(code)\n}\n```",
        "",
    );
    let expected = "docs/page.md:1: go: no file of the suite has these lines";
    check("```go\nfunc nowhereInTheSuite() {}\n```", expected);
    let swapped = "```go\nos.Exit(code)\n// …\nfunc TestMain(m *testing.M) {\n```";
    check(swapped, expected);
    check("```go\n// …\n```", expected);
    check(
        "```text\nhello\n```",
        "docs/page.md:1: text: no sh block is before this output",
    );
    check(
        "```yaml\n# web.yaml\nkind: Pod\n```\n```sh\nkubectl get pods\n```",
        "docs/page.md:1: yaml: no later sh block uses this file",
    );
    check(
        "```sh\nmizzen up &\n```",
        "docs/page.md:1: sh: a program in the background needs the text that it prints when it is ready",
    );
    check(
        "```rust,ignore\nfn nowhere_in_the_sources() {}\n```",
        "docs/page.md:1: rust,ignore: no source file has these lines",
    );
}
