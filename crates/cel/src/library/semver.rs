//! The semver library.

use std::cmp::Ordering;

use super::{cost, opaque, text};
use crate::{CallSite, EvalError, Library, Opaque, Outcome, Type, Value};
use mizzen_value::json::quote;

/// A semantic version. Build metadata is not kept, because it is not compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Semver {
    major: u64,
    minor: u64,
    patch: u64,
    release: Release,
}

/// A release comes after its pre-releases.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Release {
    Before(Vec<Identifier>),
    Final,
}

/// Numeric identifiers come before alphanumeric ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Ord for Release {
    fn cmp(&self, other: &Release) -> Ordering {
        match (self, other) {
            (Release::Before(left), Release::Before(right)) => left.cmp(right),
            (Release::Before(_), Release::Final) => Ordering::Less,
            (Release::Final, Release::Before(_)) => Ordering::Greater,
            (Release::Final, Release::Final) => Ordering::Equal,
        }
    }
}

impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Release) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Parses `1.2.3-beta.1+build`.
pub(super) fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".into());
    };
    let (major, minor) = (
        number(major, "Major", "major")?,
        number(minor, "Minor", "minor")?,
    );
    let (rest, build) = rest
        .split_once('+')
        .map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, before) = rest
        .split_once('-')
        .map_or((rest, None), |(patch, before)| (patch, Some(before)));
    let patch = number(patch, "Patch", "patch")?;
    let release = match before {
        Some(before) => Release::Before(
            before
                .split('.')
                .map(identifier)
                .collect::<Result<_, _>>()?,
        ),
        None => Release::Final,
    };
    for text in build.into_iter().flat_map(|build| build.split('.')) {
        if text.is_empty() {
            return Err("Build meta data is empty".into());
        }
        if !is_word(text) {
            let text = quote(text);
            return Err(format!(
                "Invalid character(s) found in build meta data {text}"
            ));
        }
    }
    Ok(Semver {
        major,
        minor,
        patch,
        release,
    })
}

/// Parses a version after completing a partial one like `v1.02`.
pub(super) fn parse_tolerant(text: &str) -> Result<Semver, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|part| part.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    parts.resize(3, "0".into());
    parse(&parts.join("."))
}

fn without_zeros(part: &str) -> String {
    let digits = part.trim_start_matches('0');
    match digits.starts_with(|char: char| char.is_ascii_digit()) || part.len() <= 1 {
        true if part.len() > 1 => digits.into(),
        true => part.into(),
        false => format!("0{digits}"),
    }
}

fn number(text: &str, part: &str, name: &str) -> Result<u64, String> {
    if !is_digits(text) {
        return Err(format!(
            "Invalid character(s) found in {name} number {}",
            quote(text)
        ));
    }
    if has_leading_zero(text) {
        return Err(format!(
            "{part} number must not contain leading zeroes {}",
            quote(text)
        ));
    }
    parse_number(text)
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let why = if text.is_empty() {
            "invalid syntax"
        } else {
            "value out of range"
        };
        format!("strconv.ParseUint: parsing {}: {why}", quote(text))
    })
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if !is_word(text) {
        return Err(format!(
            "Invalid character(s) found in prerelease {}",
            quote(text)
        ));
    }
    if !is_digits(text) {
        return Ok(Identifier::Word(text.into()));
    }
    if has_leading_zero(text) {
        return Err(format!(
            "Numeric PreRelease version must not contain leading zeroes {}",
            quote(text)
        ));
    }
    parse_number(text).map(Identifier::Number)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn has_leading_zero(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

impl Opaque for Semver {
    fn type_name(&self) -> &str {
        "kubernetes.Semver"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.downcast() == Some(self)
    }
}

/// The functions of `semver(…)`.
pub(super) fn library() -> Library {
    use Type::{Bool, Int, String};
    let version = || Type::object("kubernetes.Semver");
    let functions = functions! {
        "semver" {
            global "string_to_semver" (String) -> version() => from_text,
                costs cost::traverse, cost::estimate_traverse;
            global "string_bool_to_semver" (String, Bool) -> version() => from_text,
                costs cost::traverse, cost::estimate_traverse;
        }
        "isSemver" {
            global "is_semver_string" (String) -> Bool => is_version,
                costs cost::traverse, cost::estimate_traverse;
            global "is_semver_string_bool" (String, Bool) -> Bool => is_version,
                costs cost::traverse, cost::estimate_traverse;
        }
        "isGreaterThan" {
            member "semver_is_greater_than" (version(), version()) -> Bool =>
                |_, it| Ok(ordering(it)?.is_gt().into());
        }
        "isLessThan" {
            member "semver_is_less_than" (version(), version()) -> Bool =>
                |_, it| Ok(ordering(it)?.is_lt().into());
        }
        "compareTo" {
            member "semver_compare_to" (version(), version()) -> Int =>
                |_, it| Ok(Value::Int(ordering(it)? as i64));
        }
        "major" {
            member "semver_major" (version()) -> Int => |_, it| Ok(Value::Int(this(it, 0)?.major as i64));
        }
        "minor" {
            member "semver_minor" (version()) -> Int => |_, it| Ok(Value::Int(this(it, 0)?.minor as i64));
        }
        "patch" {
            member "semver_patch" (version()) -> Int => |_, it| Ok(Value::Int(this(it, 0)?.patch as i64));
        }
    };
    Library::new("kubernetes.Semver", (1, 33), functions)
}

fn this<'v>(arguments: &'v [Value], index: usize) -> Result<&'v Semver, EvalError> {
    opaque(arguments, index)
}

fn ordering(arguments: &[Value]) -> Result<Ordering, EvalError> {
    Ok(this(arguments, 0)?.cmp(this(arguments, 1)?))
}

fn read(arguments: &[Value]) -> Result<Result<Semver, String>, EvalError> {
    let is_tolerant = match arguments.get(1) {
        Some(flag) => flag.as_bool().ok_or_else(EvalError::no_such_overload)?,
        None => false,
    };
    let text = text(arguments, 0)?;
    Ok(if is_tolerant {
        parse_tolerant(text)
    } else {
        parse(text)
    })
}

fn from_text<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    read(arguments)?.map(Value::opaque).map_err(EvalError::new)
}

fn is_version<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(read(arguments)?.is_ok().into())
}
