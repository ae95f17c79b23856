//! Base64 with the semantics of Go's `encoding/base64`: line breaks are skipped anywhere, trailing
//! bits are ignored, and an error names the offset of the first byte that could not be decoded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Decodes text; the error is Go's message.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    // The fast path: no line breaks and no stray bits.
    if let Ok(bytes) = STANDARD.decode(text) {
        return Ok(bytes);
    }
    decode_slowly(text.as_bytes()).map_err(|at| format!("illegal base64 data at input byte {at}"))
}

/// Decodes text and encodes it again in Go's canonical form.
pub fn canonical(text: &str) -> Result<String, String> {
    decode(text).map(|bytes| STANDARD.encode(bytes))
}

/// Decodes four characters at a time; the error is the offset of the invalid input.
fn decode_slowly(input: &[u8]) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(input.len() / 4 * 3);
    let (mut group, mut n_letters, mut at) = (0_u32, 0_usize, 0);
    while let Some(&letter) = input.get(at) {
        at += 1;
        if is_line_break(letter) {
            continue;
        }
        if letter == b'=' {
            let end = skip_padding(input, at, n_letters)?;
            return if end < input.len() {
                Err(end)
            } else {
                push_group(&mut bytes, group << (6 * (4 - n_letters)), n_letters - 1);
                Ok(bytes)
            };
        }
        group = group << 6 | sextet(letter).ok_or(at - 1)?;
        n_letters += 1;
        if n_letters == 4 {
            push_group(&mut bytes, group, 3);
            (group, n_letters) = (0, 0);
        }
    }
    // Kubernetes: Go subtracts the number of characters although line breaks may stand between
    // them.
    if n_letters > 0 {
        Err(input.len() - n_letters)
    } else {
        Ok(bytes)
    }
}

/// The offset after the padding and the line breaks that follow it; the first `=` is just before
/// `at`.
fn skip_padding(input: &[u8], mut at: usize, n_letters: usize) -> Result<usize, usize> {
    let skip_breaks = |mut at: usize| {
        while input.get(at).copied().is_some_and(is_line_break) {
            at += 1;
        }
        at
    };
    match n_letters {
        0 | 1 => return Err(at - 1),
        2 => {
            at = skip_breaks(at);
            match input.get(at) {
                None => return Err(input.len()),
                Some(b'=') => at += 1,
                Some(_) => return Err(at - 1),
            }
        }
        _ => {}
    }
    Ok(skip_breaks(at))
}

fn push_group(bytes: &mut Vec<u8>, group: u32, n_bytes: usize) {
    bytes.extend_from_slice(&group.to_be_bytes()[1..=n_bytes]);
}

fn is_line_break(letter: u8) -> bool {
    matches!(letter, b'\r' | b'\n')
}

fn sextet(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded at v1.36.4, in the data of a Secret.
    #[test]
    fn bytes_are_read_as_go_reads_them() {
        let good = [
            ("", ""),
            ("YWJj", "YWJj"),
            ("YWJj\n", "YWJj"),
            ("YW\nJj", "YWJj"),
            ("Y\r\nW\nJ\rj", "YWJj"),
            ("YWI=\n", "YWI="),
            ("YQ=\n=", "YQ=="),
            ("YQ==\n\n", "YQ=="),
            ("YR==", "YQ=="),
            ("YWJ=", "YWI="),
            ("\n", ""),
            ("+/A=", "+/A="),
        ];
        for (text, expected) in good {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text:?}");
        }
        let bad = [
            ("YW Jj", 2),
            ("YWJj\t", 4),
            ("-_8=", 0),
            (" ", 0),
            ("YWJ", 0),
            ("YW\nJ", 1),
            ("YWJj\nYW Jj", 7),
            ("YQ=\n", 4),
            ("YQ=x", 2),
            ("YQ==x", 4),
            ("=", 0),
            ("Y=", 1),
            ("Y", 0),
            ("YWJjY", 4),
            ("YQ==\nYQ==", 5),
            ("Y\n=", 2),
            ("YWJjYQ=", 7),
            ("a===", 1),
            ("ab===", 4),
            ("YW\r\nJ!", 5),
            ("YWJj=", 4),
        ];
        for (text, at) in bad {
            let expected = format!("illegal base64 data at input byte {at}");
            assert_eq!(canonical(text), Err(expected), "{text:?}");
        }
    }
}
