//! The difference between two texts, as `diff -u` prints it and `git apply` reads it.

use std::fmt::Write as _;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The unified difference of a file; empty if there is none.
pub(crate) fn unified(path: &str, old: &str, new: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let new: Vec<&str> = new.lines().collect();
    let edits = edits(&old, &new);
    let mut out = format!("--- a/{path}\n+++ b/{path}\n");
    let empty = out.len();
    let is_change = |edit: &(char, &str)| edit.0 != ' ';
    let mut from = 0;
    while let Some(n_same) = edits[from..].iter().position(is_change) {
        let start = (from + n_same).saturating_sub(CONTEXT).max(from);
        // A hunk ends where more lines are unchanged than two contexts have.
        let mut end = from + n_same;
        while let Some(next) = edits[end..].iter().position(is_change)
            && next <= 2 * CONTEXT
        {
            end += next + 1;
        }
        let end = (end + CONTEXT).min(edits.len());
        let count = |edits: &[(char, &str)], other: char| {
            edits.iter().filter(|edit| edit.0 != other).count()
        };
        let (before, hunk) = (&edits[..start], &edits[start..end]);
        let header = |other: char| {
            let n_lines = count(hunk, other);
            let line = count(before, other) + usize::from(n_lines > 0);
            format!("{line},{n_lines}")
        };
        let _ = writeln!(out, "@@ -{} +{} @@", header('+'), header('-'));
        for (sign, line) in hunk {
            let _ = writeln!(out, "{sign}{line}");
        }
        from = end;
    }
    match out.len() == empty {
        true => String::new(),
        false => out,
    }
}

/// The lines of both texts with their signs, along a longest common subsequence.
fn edits<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<(char, &'t str)> {
    let width = new.len() + 1;
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i * width + j] = match old[i] == new[j] {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j, mut edits) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || i < old.len() && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]
        {
            edits.push(('-', old[i]));
            i += 1;
        } else {
            edits.push(('+', new[j]));
            j += 1;
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expected: &str) {
        let expected = match expected {
            "" => String::new(),
            hunks => format!("--- a/f\n+++ b/f\n{hunks}"),
        };
        assert_eq!(unified("f", old, new), expected);
    }

    #[test]
    fn equal_texts_have_no_difference() {
        check("a\nb\n", "a\nb\n", "");
    }

    #[test]
    fn a_changed_line_has_three_lines_around_it() {
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n",
            "1\n2\n3\n4\nfive\n6\n7\n8\n",
            "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
        );
    }

    #[test]
    fn changes_far_apart_are_hunks_of_their_own() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("2\n3\n", "2\n2.5\n3\n").replace("19\n", "");
        check(
            &old,
            &new,
            "@@ -1,5 +1,6 @@\n 1\n 2\n+2.5\n 3\n 4\n 5\n@@ -16,5 +17,4 @@\n 16\n 17\n 18\n-19\n 20\n",
        );
    }

    #[test]
    fn a_new_text_is_added_whole() {
        check("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n");
    }
}
