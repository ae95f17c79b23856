//! Version priority: `v2` before `v1`, those before `v1beta1`, anything else last.

use std::cmp::Ordering;

/// Compares two versions; the one with the higher priority is greater. Other names sort after
/// versions, in alphabetical order.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => right.cmp(left),
    }
}

/// The maturity of a version, and its major and minor numbers.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(rest.len());
    let major = number(&rest[..end])?;
    let (maturity, minor) = match &rest[end..] {
        "" => return Some((2, major, 0)),
        text if text.starts_with("alpha") => (0, &text[5..]),
        text => (1, text.strip_prefix("beta")?),
    };
    Some((maturity, major, number(minor)?))
}

fn number(digits: &str) -> Option<u64> {
    let plain = digits.starts_with(|char: char| matches!(char, '1'..='9'));
    let digits = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(digits)
        .filter(|_| plain)?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::compare_versions;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = [
            "foo10",
            "v1",
            "v10beta3",
            "v3beta1",
            "v11alpha2",
            "foo1",
            "v10",
            "v2",
            "v12alpha1",
            "v0",
        ];
        versions.sort_by(|left, right| compare_versions(right, left));
        let expected = [
            "v10",
            "v2",
            "v1",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v0",
        ];
        assert_eq!(versions, expected);
    }
}
