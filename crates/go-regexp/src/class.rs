//! Character classes: `[a-z\d\p{Greek}]`.
//!
//! Unicode tables are shared and case is folded while matching, so the memory of a class is
//! proportional to its text: `\p{L}` is a reference.

use super::unicode::{fold_ascii, fold_orbit};

/// An inclusive range of code points.
pub(super) type Range = (u32, u32);

#[derive(Debug)]
pub(super) struct Class {
    /// Whether it is the complement of its ranges.
    pub negated: bool,
    /// Whether case is ignored.
    fold: bool,
    /// A bit for each ASCII character that matches.
    ascii: u128,
    /// Sorted, without overlaps.
    ranges: Vec<Range>,
    /// Sorted ranges of shared Unicode tables; true means their complement.
    tables: Vec<(&'static [Range], bool)>,
}

impl Class {
    pub(super) fn new(fold: bool) -> Class {
        Class {
            negated: false,
            fold,
            ascii: 0,
            ranges: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// The characters that differ from `rune` in case only; `None` if there are none.
    pub(super) fn of_case(rune: u32) -> Option<Class> {
        let mut class = Class::new(false);
        class.ranges = fold_orbit(rune).map(|rune| (rune, rune)).collect();
        class.ranges.push((rune, rune));
        (class.ranges.len() > 1).then(|| class.finish())
    }

    pub(super) fn add_range(&mut self, low: u32, high: u32) {
        self.ranges.push((low, high));
    }

    pub(super) fn add_table(&mut self, ranges: &'static [Range], negated: bool) {
        self.tables.push((ranges, negated));
    }

    /// Adds `\d`, `\s`, `\w`, or the complement for a capital letter.
    pub(super) fn add_perl_group(&mut self, letter: char) {
        let ranges: &[Range] = match letter.to_ascii_lowercase() {
            'd' => DIGIT,
            's' => PERL_SPACE,
            _ => WORD,
        };
        self.add_table(ranges, letter.is_ascii_uppercase());
    }

    /// Sorts the ranges, so that the class can match.
    pub(super) fn finish(mut self) -> Class {
        self.ranges.sort_unstable();
        let mut merged: Vec<Range> = Vec::with_capacity(self.ranges.len());
        for (low, high) in self.ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        merged.shrink_to_fit();
        self.ranges = merged;
        self.tables.shrink_to_fit();
        let of_tables = self.tables.iter().map(|(ranges, negated)| {
            let mask = ascii_mask(ranges, self.fold);
            if *negated { !mask } else { mask }
        });
        let mask = of_tables.fold(ascii_mask(&self.ranges, self.fold), |all, mask| all | mask);
        self.ascii = if self.negated { !mask } else { mask };
        self
    }

    /// The memory of the class, in instructions.
    pub(super) fn size(&self) -> usize {
        6 + self.ranges.len() + 2 * self.tables.len()
    }

    pub(super) fn contains(&self, char: char) -> bool {
        let rune = u32::from(char);
        if rune < 128 {
            return self.ascii >> rune & 1 == 1;
        }
        let same_letters: Vec<u32> = if self.fold {
            fold_orbit(rune).collect()
        } else {
            Vec::new()
        };
        let has = |ranges: &[Range]| {
            has(ranges, rune) || same_letters.iter().any(|letter| self::has(ranges, *letter))
        };
        let found = has(&self.ranges)
            || self
                .tables
                .iter()
                .any(|(ranges, negated)| has(ranges) != *negated);
        found != self.negated
    }
}

fn has(ranges: &[Range], rune: u32) -> bool {
    let at = ranges.partition_point(|(_, high)| *high < rune);
    ranges.get(at).is_some_and(|(low, _)| *low <= rune)
}

/// A bit for each ASCII character in sorted ranges.
fn ascii_mask(ranges: &[Range], ignore_case: bool) -> u128 {
    let ascii = ranges.iter().take_while(|(low, _)| *low < 128);
    let mask = ascii.fold(0, |mask, (low, high)| {
        let width = (*high).min(127) - low + 1;
        mask | (u128::MAX >> (128 - width)) << low
    });
    if ignore_case {
        fold_ascii(mask, |rune| has(ranges, rune))
    } else {
        mask
    }
}

const DIGIT: &[Range] = &[(0x30, 0x39)];
const PERL_SPACE: &[Range] = &[(0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20)];
const WORD: &[Range] = &[(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];

/// The POSIX class `[:name:]`.
pub(super) fn posix_group(name: &str) -> Option<&'static [Range]> {
    Some(match name {
        "alnum" => &[(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)],
        "alpha" => &[(0x41, 0x5A), (0x61, 0x7A)],
        "ascii" => &[(0x00, 0x7F)],
        "blank" => &[(0x09, 0x09), (0x20, 0x20)],
        "cntrl" => &[(0x00, 0x1F), (0x7F, 0x7F)],
        "digit" => DIGIT,
        "graph" => &[(0x21, 0x7E)],
        "lower" => &[(0x61, 0x7A)],
        "print" => &[(0x20, 0x7E)],
        "punct" => &[(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
        "space" => &[(0x09, 0x0D), (0x20, 0x20)],
        "upper" => &[(0x41, 0x5A)],
        "word" => WORD,
        "xdigit" => &[(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)],
        _ => return None,
    })
}
