//! The names of images: `[DOMAIN/]PATH[:TAG][@DIGEST]`, as registries and runtimes read them.
//!
//! Short names are those of Docker Hub: `busybox` is `docker.io/library/busybox`.

use std::fmt;

/// The registry of names without a domain, and its older name.
const DEFAULT_DOMAIN: &str = "docker.io";
const LEGACY_DOMAIN: &str = "index.docker.io";
/// The path of short names in that registry.
const OFFICIAL: &str = "library/";
/// The tag of names without one.
const DEFAULT_TAG: &str = "latest";
const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;
/// The digests that are known, with their numbers of hexadecimal digits.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// The name of an image, with its registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// The registry, with its port.
    pub domain: String,
    /// The path in the registry.
    pub path: String,
    /// The tag.
    pub tag: Option<String>,
    /// The digest, such as `sha256:…`.
    pub digest: Option<String>,
}

/// Why a text is not the name of an image. Kubernetes: the messages are those of
/// `github.com/distribution/reference`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImageName {
    /// It does not have the format.
    #[error("invalid reference format")]
    Format,
    /// Its path has upper-case letters.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    UpperCase(String),
    /// Its path is too long.
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    /// It looks like the ID of an image.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    Id(String),
    /// The digest is of no known algorithm.
    #[error("unsupported digest algorithm")]
    Algorithm,
    /// The digest is too long or too short.
    #[error("invalid checksum digest length")]
    DigestLength,
}

impl ImageName {
    /// Reads a name, short or whole.
    pub fn parse(text: &str) -> Result<ImageName, InvalidImageName> {
        if text.len() == 64 && text.bytes().all(is_lower_hex) {
            return Err(InvalidImageName::Id(text.into()));
        }
        let (domain, rest) = split_domain(text);
        let path = rest.split(':').next().unwrap_or_default();
        if path.chars().any(char::is_uppercase) {
            return Err(InvalidImageName::UpperCase(path.into()));
        }
        let (name, digest) = match rest.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (rest.as_str(), None),
        };
        let (path, tag) = match name.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (name, None),
        };
        let is_valid = is_domain(domain)
            && path.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !is_valid {
            return Err(InvalidImageName::Format);
        }
        if path.len() > MAX_PATH {
            return Err(InvalidImageName::TooLong);
        }
        digest.map_or(Ok(()), check_digest)?;
        Ok(ImageName {
            domain: domain.into(),
            path: path.into(),
            tag: tag.map(String::from),
            digest: digest.map(String::from),
        })
    }

    /// The name without tag and digest.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }

    /// The name with the tag `latest`, if it has neither tag nor digest.
    pub fn with_default_tag(mut self) -> ImageName {
        if self.tag.is_none() && self.digest.is_none() {
            self.tag = Some(DEFAULT_TAG.into());
        }
        self
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.domain, self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// The domain, and the rest with the path of short names.
fn split_domain(text: &str) -> (&str, String) {
    let Some((first, rest)) = text.split_once('/') else {
        return (DEFAULT_DOMAIN, format!("{OFFICIAL}{text}"));
    };
    let is_domain =
        first == "localhost" || first.contains(['.', ':']) || first.chars().any(char::is_uppercase);
    let (domain, rest) = match first {
        LEGACY_DOMAIN => (DEFAULT_DOMAIN, rest),
        first if is_domain => (first, rest),
        _ => (DEFAULT_DOMAIN, text),
    };
    match domain == DEFAULT_DOMAIN && !rest.contains('/') {
        true => (domain, format!("{OFFICIAL}{rest}")),
        false => (domain, rest.into()),
    }
}

/// A host name, an IPv4 address or an IPv6 address in brackets, with or without a port.
fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((address, port)) => {
            let is_address = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
            if address.is_empty() || !address.bytes().all(is_address) {
                return false;
            }
            (
                None,
                port.strip_prefix(':').or((!port.is_empty()).then_some("")),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    host.is_none_or(|host| host.split('.').all(is_label)) && port.is_none_or(is_port)
}

/// A part of a path: letters and digits, with separators between them.
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().last()) else {
        return false;
    };
    is_word(first)
        && is_word(last)
        && text
            .split(|letter: char| letter.is_ascii() && is_word(letter as u8))
            .all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = text.bytes();
    text.len() <= MAX_TAG
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, digits)) = text.split_once(':') else {
        return false;
    };
    let is_part = |part: &str| {
        part.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && digits.len() >= 32
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_digest(text: &str) -> Result<(), InvalidImageName> {
    let (algorithm, digits) = text.split_once(':').unwrap_or_default();
    let mut known = DIGESTS.into_iter();
    let (_, length) = known
        .find(|(name, _)| *name == algorithm)
        .ok_or(InvalidImageName::Algorithm)?;
    match digits.len() == length {
        true if digits.bytes().all(is_lower_hex) => Ok(()),
        true => Err(InvalidImageName::Format),
        false => Err(InvalidImageName::DigestLength),
    }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_registry_and_path() {
        let digest = format!("sha256:{}", "a1".repeat(32));
        for (text, whole) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("team/app", "docker.io/team/app"),
            ("docker.io/busybox", "docker.io/library/busybox"),
            ("index.docker.io/team/app:V1", "docker.io/team/app:V1"),
            ("localhost/app", "localhost/app"),
            (
                "127.0.0.1:5000/a/b__c/d--e:1",
                "127.0.0.1:5000/a/b__c/d--e:1",
            ),
            ("[::1]:5000/app", "[::1]:5000/app"),
            ("Upper/app", "Upper/app"),
            (
                &format!("a.example/b:1@{digest}"),
                &format!("a.example/b:1@{digest}"),
            ),
        ] {
            assert_eq!(ImageName::parse(text).unwrap().to_string(), whole, "{text}");
        }
        let name = ImageName::parse("a.example/b").unwrap();
        assert_eq!(name.repository(), "a.example/b");
        assert_eq!(name.with_default_tag().to_string(), "a.example/b:latest");
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_reason() {
        let (hex, short) = ("ab".repeat(32), "ab".repeat(20));
        for (text, why) in [
            ("", "invalid reference format"),
            ("a b", "invalid reference format"),
            ("a/", "invalid reference format"),
            ("a:", "invalid reference format"),
            ("a___b", "invalid reference format"),
            ("-a", "invalid reference format"),
            ("a.example:port/b", "invalid reference format"),
            (
                "Busybox",
                "invalid reference format: repository name (library/Busybox) must be lowercase",
            ),
            (
                &*hex,
                &*format!(
                    "invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings"
                ),
            ),
            (
                &*format!("a@sha256:{short}"),
                "invalid checksum digest length",
            ),
            (&*format!("a@md5:{short}"), "unsupported digest algorithm"),
            (
                "a/".repeat(200).trim_end_matches('/'),
                "repository name must not be more than 255 characters",
            ),
        ] {
            assert_eq!(
                ImageName::parse(text).unwrap_err().to_string(),
                why,
                "{text}"
            );
        }
    }
}
