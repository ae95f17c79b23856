//! Blocks of PEM.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A block: its label, and what is inside.
pub struct PemBlock {
    /// What the block says it is: `CERTIFICATE`.
    pub label: String,
    /// Whether headers come before the content.
    pub has_headers: bool,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The first block of `text` and what follows it. As in Go, what is no block is passed over.
pub fn decode(text: &str) -> Option<(PemBlock, &str)> {
    let mut rest = text;
    loop {
        let start = rest.find("-----BEGIN ")?;
        let at_line_start = start == 0 || rest.as_bytes()[start - 1] == b'\n';
        rest = &rest[start + "-----BEGIN ".len()..];
        if let Some(found) = at_line_start.then(|| decode_here(rest)).flatten() {
            return Some(found);
        }
    }
}

/// A block whose label starts here.
fn decode_here(text: &str) -> Option<(PemBlock, &str)> {
    let (first, body) = text.split_once('\n')?;
    let label = first.trim_end().strip_suffix("-----")?;
    let end = format!("-----END {label}-----");
    let at = if body.starts_with(&end) {
        0
    } else {
        body.find(&format!("\n{end}"))? + 1
    };
    let after = &body[at + end.len()..];
    let (line_end, rest) = after.split_once('\n').unwrap_or((after, ""));
    if !line_end.trim().is_empty() {
        return None;
    }
    let (headers, lines): (Vec<&str>, Vec<&str>) =
        body[..at].lines().partition(|line| line.contains(':'));
    let bytes = STANDARD
        .decode(lines.concat().replace(char::is_whitespace, ""))
        .ok()?;
    Some((
        PemBlock {
            label: label.to_string(),
            has_headers: !headers.is_empty(),
            bytes,
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &[u8], &str)>) {
        let found = decode(text);
        let found = found
            .as_ref()
            .map(|(block, rest)| (block.label.as_str(), block.bytes.as_slice(), *rest));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_block_is_found_behind_other_text() {
        check(
            "hello\n-----BEGIN A B-----\nYWJj\n-----END A B-----\nrest",
            Some(("A B", b"abc", "rest")),
        );
        check("abc", None);
        check("-----BEGIN A-----\nYWJj\n-----END B-----\n", None);
    }
}
