//! The format library: `format.dns1123Label().validate(…)`.

use super::{cost, opaque, text, texts, url};
use crate::{
    CallEstimate, CallSite, EvalError, Function, Library, Opaque, Outcome, Overload, OverloadFn,
    REGEX, TRAVERSAL, Type, Value,
};
use mizzen_value::time::Moment;
use mizzen_value::validation::names;

#[derive(Clone, Copy)]
pub(super) struct NamedFormat {
    name: &'static str,
    /// The length of an equivalent regular expression, which is the cost of validation.
    pattern_size: u64,
    violations: fn(&str) -> Vec<String>,
}

impl std::fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! formats {
    ($($name:literal, $pattern_size:literal, $violations:expr;)*) => {
        /// The format of this name.
        pub(super) fn named(name: &str) -> Option<NamedFormat> {
            Some(match name {
                $($name => NamedFormat { name: $name, pattern_size: $pattern_size, violations: $violations },)*
                _ => return None,
            })
        }

        /// The functions that return a format.
        const FUNCTIONS: &[(&str, OverloadFn)] = &[$((concat!("format.", $name), |_, _| constant($name)),)*];
    };
}

formats! {
    "dns1123Label", 30, |text| names::name_is_dns_label(text, false);
    "dns1123Subdomain", 60, |text| names::name_is_dns_subdomain(text, false);
    "dns1035Label", 30, |text| names::name_is_dns1035_label(text, false);
    "qualifiedName", 60, names::is_qualified_name;
    "dns1123LabelPrefix", 30, |text| names::name_is_dns_label(text, true);
    "dns1123SubdomainPrefix", 60, |text| names::name_is_dns_subdomain(text, true);
    "dns1035LabelPrefix", 30, |text| names::name_is_dns1035_label(text, true);
    "labelValue", 40, names::is_label_value;
    "uri", 1103, |text| url::check(text).err().into_iter().collect();
    "uuid", 70, |text| unless(is_uuid(text), "does not match the UUID format");
    "byte", 84, |text| unless(is_base64(text), "invalid base64");
    "date", 71, |text| unless(is_date(text), "invalid date");
    "datetime", 71, |text| unless(is_date_time(text), "invalid datetime");
}

fn unless(is_good: bool, message: &str) -> Vec<String> {
    if is_good {
        Vec::new()
    } else {
        vec![message.into()]
    }
}

fn is_uuid(text: &str) -> bool {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let mut rest = text;
    for (index, size) in GROUPS.iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.split_at_checked(*size) {
            Some((group, tail)) if group.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                rest = tail
            }
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Kubernetes: the empty string is not base64 here, and trailing bits are ignored.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && Moment::parse(&format!("{text}T00:00:00Z")).is_ok()
}

/// Kubernetes: any character may precede the fraction, leap seconds are rejected, and the text
/// after a second `t` is ignored.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some((clock, rest)) = time.split_at_checked(8) else {
        return false;
    };
    let clock = clock.as_bytes();
    let is_number = |at: usize, limit: &[u8]| {
        clock[at..at + 2].iter().all(u8::is_ascii_digit) && &clock[at..at + 2] <= limit
    };
    let is_clock = clock[2] == b':'
        && clock[5] == b':'
        && is_number(0, b"23")
        && is_number(3, b"59")
        && is_number(6, b"59");
    let mut fraction = rest.chars();
    fraction.next();
    let fraction = fraction.as_str();
    let zone = fraction.trim_start_matches(|char: char| char.is_ascii_digit());
    let is_zoned_fraction = zone.len() < fraction.len() && !rest.starts_with('\n') && is_zone(zone);
    is_date(date) && is_clock && (is_zone(rest) || is_zoned_fraction)
}

fn is_zone(zone: &str) -> bool {
    let is_digit = |index: usize| zone.as_bytes()[index].is_ascii_digit();
    zone == "z"
        || zone.len() == 6
            && zone.starts_with(['+', '-'])
            && zone.as_bytes()[3] == b':'
            && [1, 2, 4, 5].into_iter().all(is_digit)
}

impl Opaque for NamedFormat {
    fn type_name(&self) -> &str {
        "kubernetes.NamedFormat"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other
            .downcast::<NamedFormat>()
            .is_some_and(|other| other.name == self.name)
    }
}

/// Functions of named formats.
pub(super) fn library() -> Library {
    let kind = || Type::object("kubernetes.NamedFormat");
    let constant = |&(name, run): &(&'static str, OverloadFn)| {
        Function::new(name, vec![Overload::global(name, vec![], kind(), run)])
    };
    let mut functions: Vec<Function> = FUNCTIONS.iter().map(constant).collect();
    let by_name = Overload::global(
        "format-named",
        vec![Type::String],
        Type::optional(kind()),
        |_, arguments| {
            let format = named(text(arguments, 0)?);
            Ok(format.map_or(Value::Optional(None), |format| {
                Value::some(Value::opaque(format))
            }))
        },
    );
    functions.push(Function::new("format.named", vec![by_name]));
    let violations = Type::optional(Type::list(Type::String));
    let validate = Overload::member(
        "format-validate",
        vec![kind(), Type::String],
        violations,
        validate,
    );
    functions.push(Function::new(
        "validate",
        vec![validate.costs(
            |arguments, _| {
                let format = arguments[0].as_opaque::<NamedFormat>();
                let pattern_size = format.map_or(1, |format| format.pattern_size);
                cost::search(arguments[1].size(), pattern_size)
            },
            |sizing, _, arguments| {
                let text = sizing.size(arguments.first()?);
                let cost = text.scale(TRAVERSAL).scale(MAX_PATTERN * REGEX);
                Some(CallEstimate::cost(cost))
            },
        )],
    ));
    Library::new("kubernetes.format", (1, 31), functions)
}

fn constant<'a>(name: &str) -> Outcome<'a> {
    named(name)
        .map(Value::opaque)
        .ok_or_else(EvalError::no_such_overload)
}

fn validate<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let violations = (opaque::<NamedFormat>(arguments, 0)?.violations)(text(arguments, 1)?);
    Ok(if violations.is_empty() {
        Value::Optional(None)
    } else {
        Value::some(texts(violations))
    })
}

/// Kubernetes: the assumed maximum length of a pattern.
const MAX_PATTERN: f64 = 128.0;
