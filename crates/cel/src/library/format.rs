//! `format.dns1123Label().validate(…)`: named formats of text, and what is wrong with a text.

use super::{cost, opaque, text, texts, url};
use crate::{
    CallEstimate, EvalError, Function, Library, Node, Opaque, Outcome, Overload, REGEX, Run, Site,
    Sizing, TRAVERSAL, Type, Value,
};
use mizzen_value::time::Moment;
use mizzen_value::validation::names;

/// A format with a name.
#[derive(Clone, Copy)]
pub(super) struct NamedFormat {
    name: &'static str,
    /// How long a regular expression for it would be, which is what its use costs.
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
        /// The format of a name.
        pub(super) fn named(name: &str) -> Option<NamedFormat> {
            Some(match name {
                $($name => NamedFormat { name: $name, pattern_size: $pattern_size, violations: $violations },)*
                _ => return None,
            })
        }

        /// The functions that yield a format each.
        const FUNCTIONS: &[(&str, Run)] = &[$((concat!("format.", $name), |_, _| constant($name)),)*];
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

/// Kubernetes: nothing is no base64 here, and the bits that the padding leaves over may be set.
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

/// Kubernetes: any character may stand before the fraction, leap seconds are refused, and what follows a second
/// `t` is not looked at.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some((clock, rest)) = time.split_at_checked(8) else {
        return false;
    };
    is_date(date) && is_clock(clock.as_bytes()) && is_fraction_and_zone(rest)
}

fn is_clock(clock: &[u8]) -> bool {
    let is_number = |at: usize, limit: &[u8]| {
        clock[at..at + 2].iter().all(u8::is_ascii_digit) && &clock[at..at + 2] <= limit
    };
    clock[2] == b':'
        && clock[5] == b':'
        && is_number(0, b"23")
        && is_number(3, b"59")
        && is_number(6, b"59")
}

fn is_fraction_and_zone(rest: &str) -> bool {
    if is_zone(rest) {
        return true;
    }
    let mut chars = rest.chars();
    chars.next();
    let zone = chars
        .as_str()
        .trim_start_matches(|char: char| char.is_ascii_digit());
    zone.len() < chars.as_str().len() && !rest.starts_with('\n') && is_zone(zone)
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

/// The formats by name, and their use.
pub(super) fn library() -> Library {
    let kind = || Type::object("kubernetes.NamedFormat");
    let constant = |&(name, run): &(&'static str, Run)| {
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
        vec![validate.costs(validate_cost, validate_estimate)],
    ));
    Library::new("kubernetes.format", (1, 31), functions)
}

fn constant<'a>(name: &str) -> Outcome<'a> {
    named(name)
        .map(Value::opaque)
        .ok_or_else(EvalError::no_such_overload)
}

fn validate<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let violations = (opaque::<NamedFormat>(arguments, 0)?.violations)(text(arguments, 1)?);
    Ok(if violations.is_empty() {
        Value::Optional(None)
    } else {
        Value::some(texts(violations))
    })
}

fn validate_cost(arguments: &[Value], _: &Value) -> u64 {
    let pattern_size = arguments[0]
        .as_opaque::<NamedFormat>()
        .map_or(1, |format| format.pattern_size);
    cost::search(arguments[1].size(), pattern_size)
}

/// Kubernetes: the longest pattern that is reckoned with.
const MAX_PATTERN: f64 = 128.0;

fn validate_estimate(
    sizing: &Sizing,
    _: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    let text = sizing.of(arguments.first()?);
    Some(CallEstimate::cost(
        text.scale(TRAVERSAL).scale(MAX_PATTERN * REGEX),
    ))
}
