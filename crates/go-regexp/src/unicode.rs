//! Unicode tables as Go's regular expressions name them, and simple case folding.
//!
//! Kubernetes: the names are those of Go 1.26, so Unicode 15.0 (`unicode.names`: categories, their
//! aliases, scripts). The tables come from `regex-syntax`, which has Unicode 16.0.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::class::Range;

/// A named set of characters.
pub(super) struct UnicodeTable {
    pub ranges: &'static [Range],
    /// Whether it is the complement.
    pub inverted: bool,
}

/// A name and its ranges, loaded at their first use.
type Named = (&'static str, OnceLock<Vec<Range>>);

/// The names without separators in Go's canonical case, sorted.
static NAMES: OnceLock<Vec<Named>> = OnceLock::new();

/// The table of a name; case, spaces, hyphens and underscores are ignored.
pub(super) fn table(name: &str) -> Option<UnicodeTable> {
    let mut letters = name.chars().filter(|char| !matches!(char, '_' | '-' | ' '));
    let first = letters.next().map(|char| char.to_ascii_uppercase());
    let rest = letters.map(|char| char.to_ascii_lowercase());
    let name: String = first.into_iter().chain(rest).collect();
    let plain = |ranges| {
        Some(UnicodeTable {
            ranges,
            inverted: false,
        })
    };
    match name.as_str() {
        "Any" => plain(&[(0, 0x10FFFF)]),
        "Ascii" => plain(&[(0, 0x7F)]),
        "Assigned" => Some(UnicodeTable {
            ranges: named_ranges("Cn")?,
            inverted: true,
        }),
        // A text has no surrogates, and neither have the tables.
        "Cs" | "Surrogate" => plain(&[(0xD800, 0xDFFF)]),
        name => plain(named_ranges(name)?),
    }
}

fn named_ranges(name: &str) -> Option<&'static [Range]> {
    let names = NAMES.get_or_init(|| {
        include_str!("unicode.names")
            .split_whitespace()
            .map(|name| (name, OnceLock::new()))
            .collect()
    });
    let at = names.binary_search_by(|(known, _)| known.cmp(&name)).ok()?;
    let (name, ranges) = &names[at];
    Some(ranges.get_or_init(|| load(name)))
}

fn load(name: &str) -> Vec<Range> {
    let parsed = regex_syntax::parse(&format!(r"\p{{{name}}}"))
        .expect("Unicode 16.0 has every name of 15.0");
    match parsed.into_kind() {
        HirKind::Class(Class::Unicode(class)) => class
            .iter()
            .map(|range| (range.start().into(), range.end().into()))
            .collect(),
        // A table of one character is a literal.
        HirKind::Literal(text) => String::from_utf8_lossy(&text.0)
            .chars()
            .map(|char| (char.into(), char.into()))
            .collect(),
        _ => unreachable!("a named class is a class"),
    }
}

const LONG_S: u32 = 0x17F;
const KELVIN: u32 = 0x212A;

/// The other code points of the same letter in another case.
pub(super) fn fold_orbit(rune: u32) -> impl Iterator<Item = u32> {
    let char = char::from_u32(rune).filter(|char| !char.is_ascii() || char.is_ascii_alphabetic());
    let orbit = char.map(|char| {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(char, char)]);
        class.case_fold_simple();
        class
    });
    let ranges: Vec<Range> = orbit
        .iter()
        .flat_map(|orbit| orbit.iter())
        .map(|range| (range.start().into(), range.end().into()))
        .collect();
    ranges
        .into_iter()
        .flat_map(|(low, high)| low..=high)
        .filter(move |other| *other != rune)
}

/// The ASCII characters of a set, and those that differ in case only from one of its members. `has`
/// tells whether a character beyond ASCII is in the set.
pub(super) fn fold_ascii(mask: u128, has: impl Fn(u32) -> bool) -> u128 {
    const UPPER: u128 = 0x3FF_FFFF << 0x41;
    const LOWER: u128 = 0x3FF_FFFF << 0x61;
    const fn both(letter: u8) -> u128 {
        1 << letter.to_ascii_lowercase() | 1 << letter.to_ascii_uppercase()
    }
    let long_s = if has(LONG_S) { both(b's') } else { 0 };
    let kelvin = if has(KELVIN) { both(b'k') } else { 0 };
    mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32 | long_s | kelvin
}
