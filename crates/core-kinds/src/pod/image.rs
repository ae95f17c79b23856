//! Image references, and the default pull policy that follows from them.
//!
//! `[domain[:port]/]path[:tag][@digest]`. A reference that does not parse gets `IfNotPresent`; the container
//! runtime reports it.

/// The default pull policy: `Always` for the tag `latest`, `IfNotPresent` otherwise.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let latest = match ImageReference::parse(image) {
        Some(ImageReference { tag, digest }) => {
            tag == Some("latest") || tag.is_none() && digest.is_none()
        }
        None => false,
    };
    if latest { "Always" } else { "IfNotPresent" }
}

struct ImageReference<'a> {
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

impl<'a> ImageReference<'a> {
    /// Parses an image reference; none if it is invalid.
    fn parse(image: &'a str) -> Option<ImageReference<'a>> {
        let (name, digest) = split(image, '@');
        let slash = name.rfind('/').map_or(0, |slash| slash + 1);
        let (last, tag) = split(&name[slash..], ':');
        let path = &name[..slash + last.len()];
        // A bare identifier of an image is no name, though it looks like one.
        let is_identifier = image.len() == 64 && image.bytes().all(is_lower_hex);
        let sound = !is_identifier
            && is_path(path)
            && tag.is_none_or(|text| {
                let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                (1..=128).contains(&text.len())
                    && is_word(text.as_bytes()[0])
                    && text
                        .bytes()
                        .all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
            })
            && digest.is_none_or(|text| {
                let length = match text.split_once(':') {
                    Some(("sha256", _)) => 64,
                    Some(("sha384", _)) => 96,
                    Some(("sha512", _)) => 128,
                    _ => return false,
                };
                text.len() == length + "sha256:".len()
                    && text.bytes().skip("sha256:".len()).all(is_lower_hex)
            });
        sound.then_some(ImageReference { tag, digest })
    }
}

fn split(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_path(path: &str) -> bool {
    let remote = match path.split_once('/') {
        Some((domain, remote))
            if domain == "localhost"
                || domain.contains(['.', ':'])
                || domain.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            let (host, port) = match domain.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => (host, port),
                _ => (domain, "0"),
            };
            let is_domain =
                !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && is_host(host);
            if !is_domain && !is_component(domain) {
                return false;
            }
            remote
        }
        _ => path,
    };
    remote.len() <= 255 && remote.split('/').all(is_component)
}

fn is_host(text: &str) -> bool {
    match text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        Some(ip) => {
            !ip.is_empty()
                && ip
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => text.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        }),
    }
}

/// Lower-case words with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separators = text
        .split(|c: char| c.is_ascii() && is_word(c as u8))
        .filter(|part| !part.is_empty());
    text.bytes().next().is_some_and(is_word) && text.bytes().next_back().is_some_and(is_word) && {
        separators
    }
    .all(|part| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-'))
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[track_caller]
    fn check(policy: &str, images: &[&str]) {
        for image in images {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn what_may_change_is_always_pulled() {
        check(
            "Always",
            &[
                "nginx",
                "nginx:latest",
                "reg.example.com:5000/nginx",
                "localhost/a/b__c",
                "[::1]:5000/x",
                "Example/x",
                "foo_bar.com/x",
            ],
        );
    }

    #[test]
    fn what_is_fixed_or_unreadable_is_not() {
        check(
            "IfNotPresent",
            &[
                "nginx:1.27",
                "reg:5000/x/nginx:v1",
                "nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                "",
                " ",
                "UPPER",
                "a..b",
                "a:",
                "nginx:latest@sha256:00",
                "0000000000000000000000000000000000000000000000000000000000000000",
            ],
        );
    }
}
