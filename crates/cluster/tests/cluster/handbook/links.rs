//! Do links and anchors resolve, and does the table of contents list every page?

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{files, pages, root};

/// The targets of the links and pictures of a page: what is between `](` and `)`. Code is left out.
fn targets(text: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_inside ^= line.trim_start().starts_with("```");
        if is_inside || line.starts_with("    ") {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("");
        let targets = prose.split("](").skip(1);
        found.extend(targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    found
}

/// The anchors of a page: its headings, as Markdown renderers name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let slug = |heading: String| -> String {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// Why a link of the page at `file` leads nowhere.
fn fault(file: &Path, target: &str) -> Option<String> {
    let is_external = ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme));
    if is_external {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let directory = file.parent().expect("a page is in a directory");
    let linked = match path {
        "" => file.to_owned(),
        path => directory.join(path),
    };
    if !linked.exists() {
        return Some(format!("{}: {target} does not exist", file.display()));
    }
    let is_anchor_missing = !anchor.is_empty()
        && !anchors(&fs::read_to_string(&linked).unwrap_or_default()).contains(anchor);
    is_anchor_missing.then(|| format!("{}: {target}: no such heading", file.display()))
}

#[test]
fn links_and_anchors_resolve() {
    let mut files = files(&root().join("docs"), "md");
    files.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    let mut n_links = 0;
    let mut faults = Vec::new();
    for file in &files {
        for target in targets(&fs::read_to_string(file).unwrap()) {
            n_links += 1;
            faults.extend(fault(file, &target));
        }
    }
    assert!(n_links > 100, "{n_links} links");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = targets(&summary);
    listed.sort();
    let pages = pages().into_iter().map(|page| page.name);
    let pages: Vec<String> = pages.filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(listed, pages);
}

#[test]
fn a_link_to_a_missing_page_or_heading_is_reported() {
    let page = root().join("docs/flags.md");
    assert_eq!(fault(&page, "envtest.md"), None);
    assert_eq!(fault(&page, "#logs"), None);
    assert_eq!(fault(&page, "https://kubernetes.io/#no"), None);
    assert!(fault(&page, "no-such-page.md").is_some());
    assert!(fault(&page, "envtest.md#no-such-heading").is_some());
    assert_eq!(
        targets("see [a](b.md) and `[c](d.md)`, ![e](f.svg)"),
        ["b.md", "f.svg"]
    );
}
