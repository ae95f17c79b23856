//! Comparison of secrets in constant time.

use sha2::{Digest as _, Sha256};

/// Compares two secrets in a time that depends only on their lengths.
pub(crate) fn is_same(left: &[u8], right: &[u8]) -> bool {
    let differ = left
        .iter()
        .zip(right)
        .fold(0, |sum, (left, right)| sum | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differ) == 0
}

/// The lookup key of a secret. A client cannot choose a digest, so the lookup need not take
/// constant time.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_when_every_byte_is() {
        for (left, right, expected) in [
            ("", "", true),
            ("ab", "ab", true),
            ("ab", "ac", false),
            ("ab", "bb", false),
            ("ab", "abc", false),
        ] {
            assert_eq!(
                is_same(left.as_bytes(), right.as_bytes()),
                expected,
                "{left} {right}"
            );
            assert_eq!(digest(left) == digest(right), expected, "{left} {right}");
        }
    }
}
