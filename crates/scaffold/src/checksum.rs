//! The file `PROJECT.sum`: what was generated, so that edits are told from it.
//!
//! A checksum of Rust sources ignores white space and commas: `cargo fmt` is no edit.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The name of the file.
pub(crate) const FILE: &str = "PROJECT.sum";

const HEADER: &str =
    "# Checksums of generated files, by which `mizzen` tells which ones were edited. Commit it.\n";

/// The checksums of generated files, by path.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Checksums(pub(crate) BTreeMap<String, String>);

impl Checksums {
    /// Reads the file; lines that are none are ignored: then a file counts as edited.
    pub(crate) fn parse(text: &str) -> Checksums {
        let lines = text.lines().filter_map(|line| line.split_once("  "));
        let lines = lines.filter(|(sum, _)| !sum.starts_with('#'));
        Checksums(
            lines
                .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
                .collect(),
        )
    }

    /// The text of the file.
    pub(crate) fn to_text(&self) -> String {
        let lines = self.0.iter().map(|(path, sum)| format!("{sum}  {path}\n"));
        std::iter::once(HEADER.to_owned()).chain(lines).collect()
    }
}

/// The checksum of a file.
pub(crate) fn checksum(path: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    match path.ends_with(".rs") {
        true => {
            let is_space = |it: char| it.is_whitespace() || it == ',';
            text.split(is_space).for_each(|word| hash.update(word));
        }
        false => hash.update(text),
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_no_edit_of_rust_and_is_one_of_yaml() {
        let (long, short) = ("f(\n    a,\n    b,\n)\n", "f(a, b)\n");
        assert_eq!(checksum("f.rs", long), checksum("f.rs", short));
        assert_ne!(checksum("f.rs", long), checksum("f.rs", "f(a, c)\n"));
        assert_ne!(
            checksum("f.yaml", "a:\n  b\n"),
            checksum("f.yaml", "a:\nb\n")
        );
    }

    #[test]
    fn the_file_is_read_as_it_is_written() {
        let sums = Checksums([("a.rs".to_owned(), checksum("a.rs", "fn a() {}"))].into());
        assert_eq!(Checksums::parse(&sums.to_text()), sums);
    }
}
