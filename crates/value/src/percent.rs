//! Percent-encoding, as in URLs and in `grpc-message`.

use std::borrow::Cow;

/// Decodes every `%XX`. Malformed sequences stay as they are; invalid UTF-8 is replaced.
///
/// ```
/// assert_eq!(mizzen_value::percent::decode("caf%C3%A9 100%"), "café 100%");
/// ```
pub fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    let digit = |at: usize| Some(char::from(*bytes.get(at)?).to_digit(16)? as u8);
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn only_two_hexadecimal_digits_are_a_byte() {
        for (text, expected) in [
            ("", ""),
            ("plain +", "plain +"),
            ("a%20b%2Fc%2f", "a b/c/"),
            ("%e2%82%AC", "€"),
            ("%", "%"),
            ("%2", "%2"),
            ("%zz%+1%41", "%zz%+1A"),
            ("%%41", "%A"),
            ("%25%34%31", "%41"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(decode(text), expected, "{text}");
        }
    }
}
