//! Unified diffs, as some messages quote them.
//!
//! Kubernetes: some messages quote a diff, so the choice among equally good ones is part of them. This is the
//! algorithm of Python's difflib, which upstream uses: find the longest run of equal lines, then look left and
//! right of it; in long texts, lines that occur often start no run.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::Range;

const CONTEXT: usize = 3;

/// The lines of a hunk as `-35,7 +35,7`, then the lines with their signs; nothing where nothing differs.
pub(super) fn unified(before: &str, after: &str) -> String {
    let (a, b) = (
        before.lines().collect::<Vec<_>>(),
        after.lines().collect::<Vec<_>>(),
    );
    let mut text = String::new();
    for hunk in hunks(changes(&a, &b)) {
        let (first, last) = (&hunk[0], &hunk[hunk.len() - 1]);
        let before = first.a.start.min(first.b.start).min(CONTEXT);
        let after = (a.len() - last.a.end)
            .min(b.len() - last.b.end)
            .min(CONTEXT);
        let (shown_a, shown_b) = (
            first.a.start - before..last.a.end + after,
            first.b.start - before..last.b.end + after,
        );
        let _ = writeln!(&mut text, "@@ -{} +{} @@", span(&shown_a), span(&shown_b));
        let mut next = shown_a.start;
        for change in &hunk {
            write_lines(' ', &a[next..change.a.start], &mut text);
            write_lines('-', &a[change.a.clone()], &mut text);
            write_lines('+', &b[change.b.clone()], &mut text);
            next = change.a.end;
        }
        write_lines(' ', &a[next..shown_a.end], &mut text);
    }
    text
}

/// Lines of the first text that become lines of the second.
struct DiffChange {
    a: Range<usize>,
    b: Range<usize>,
}

fn changes(a: &[&str], b: &[&str]) -> Vec<DiffChange> {
    let mut changes = Vec::new();
    let (mut i, mut j) = (0, 0);
    let end = EqualRun {
        a: a.len(),
        b: b.len(),
        len: 0,
    };
    for run in SequenceMatcher::new(a, b).runs().into_iter().chain([end]) {
        if i < run.a || j < run.b {
            changes.push(DiffChange {
                a: i..run.a,
                b: j..run.b,
            });
        }
        (i, j) = (run.a + run.len, run.b + run.len);
    }
    changes
}

/// Changes whose context would touch belong together.
fn hunks(changes: Vec<DiffChange>) -> Vec<Vec<DiffChange>> {
    let mut hunks: Vec<Vec<DiffChange>> = Vec::new();
    for change in changes {
        match hunks
            .last_mut()
            .filter(|hunk| change.a.start - hunk[hunk.len() - 1].a.end <= 2 * CONTEXT)
        {
            Some(hunk) => hunk.push(change),
            None => hunks.push(vec![change]),
        }
    }
    hunks
}

fn span(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => (lines.start + 1).to_string(),
        n => format!("{},{n}", lines.start + 1),
    }
}

fn write_lines(sign: char, lines: &[&str], text: &mut String) {
    for line in lines {
        let _ = writeln!(text, "{sign}{line}");
    }
}

/// Equal lines of both texts.
#[derive(Clone, Copy)]
struct EqualRun {
    a: usize,
    b: usize,
    len: usize,
}

struct SequenceMatcher<'a> {
    a: &'a [&'a str],
    b: &'a [&'a str],
    /// Where in `b` each line is that may start a run.
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> SequenceMatcher<'a> {
    fn new(a: &'a [&'a str], b: &'a [&'a str]) -> SequenceMatcher<'a> {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in b.iter().enumerate() {
            places.entry(line).or_default().push(index);
        }
        if b.len() >= 200 {
            places.retain(|_, indexes| indexes.len() <= b.len() / 100 + 1);
        }
        SequenceMatcher { a, b, places }
    }

    /// All runs, in order.
    fn runs(&self) -> Vec<EqualRun> {
        let mut runs = Vec::new();
        let mut open = vec![(0..self.a.len(), 0..self.b.len())];
        while let Some((a, b)) = open.pop() {
            let run = self.longest(&a, &b);
            if run.len > 0 {
                open.push((a.start..run.a, b.start..run.b));
                open.push((run.a + run.len..a.end, run.b + run.len..b.end));
                runs.push(run);
            }
        }
        runs.sort_unstable_by_key(|run| run.a);
        runs
    }

    /// The longest run between two places; among equals the first.
    fn longest(&self, a: &Range<usize>, b: &Range<usize>) -> EqualRun {
        let mut best = EqualRun {
            a: a.start,
            b: b.start,
            len: 0,
        };
        let mut ending: HashMap<usize, usize> = HashMap::new();
        for i in a.clone() {
            let mut ending_here = HashMap::new();
            for &j in self
                .places
                .get(self.a[i])
                .into_iter()
                .flatten()
                .filter(|j| b.contains(j))
            {
                let len = 1 + j
                    .checked_sub(1)
                    .and_then(|j| ending.get(&j))
                    .copied()
                    .unwrap_or(0);
                ending_here.insert(j, len);
                if len > best.len {
                    best = EqualRun {
                        a: i + 1 - len,
                        b: j + 1 - len,
                        len,
                    };
                }
            }
            ending = ending_here;
        }
        self.extend(best, a, b)
    }

    /// Takes in the frequent lines on both sides.
    fn extend(&self, mut run: EqualRun, a: &Range<usize>, b: &Range<usize>) -> EqualRun {
        while run.a > a.start && run.b > b.start && self.a[run.a - 1] == self.b[run.b - 1] {
            run = EqualRun {
                a: run.a - 1,
                b: run.b - 1,
                len: run.len + 1,
            };
        }
        while run.a + run.len < a.end
            && run.b + run.len < b.end
            && self.a[run.a + run.len] == self.b[run.b + run.len]
        {
            run.len += 1;
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::unified;

    #[track_caller]
    fn check(before: &str, after: &str, expected: Expect) {
        let lines = |text: &str| {
            text.split(' ')
                .map(|line| format!("{line}\n"))
                .collect::<String>()
        };
        expected.assert_eq(&unified(&lines(before), &lines(after)));
    }

    #[test]
    fn equal_texts_have_no_hunk() {
        check("a b c", "a b c", expect![""]);
    }

    #[test]
    fn a_change_has_three_lines_around_it() {
        check(
            "1 2 3 4 5 6 7 8 9",
            "1 2 3 4 X 6 7 8 9",
            expect![[r#"
            @@ -2,7 +2,7 @@
             2
             3
             4
            -5
            +X
             6
             7
             8
        "#]],
        );
    }

    #[test]
    fn far_changes_have_hunks_of_their_own() {
        check(
            "1 2 3 4 5 6 7 8 9 10",
            "0 1 2 3 4 5 6 7 8 9",
            expect![[r#"
            @@ -1,3 +1,4 @@
            +0
             1
             2
             3
            @@ -7,4 +8,3 @@
             7
             8
             9
            -10
        "#]],
        );
    }
}
