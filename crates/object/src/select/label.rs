//! Label selectors in their text form: `app=web,tier in (a,b),!old,size>3`.

use crate::validate::names::{is_label_value, is_qualified_name};
use mizzen_value::json::quote;
use mizzen_value::{Str, Value};

/// A label selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The requirements.
    pub requirements: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: Str,
    /// The operator with its values.
    pub operator: SelectorOperator,
}

/// The operator of a requirement, with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectorOperator {
    /// The label is one of these. One value for `=`.
    In(Vec<Str>),
    /// The label is absent, or none of these.
    NotIn(Vec<Str>),
    /// The label exists.
    Exists,
    /// The label is absent.
    Absent,
    /// The label is a number greater than this.
    Greater(i64),
    /// The label is a number less than this.
    Less(i64),
}

impl LabelSelector {
    /// Parses a selector; the error is a message for the client.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        SelectorParser {
            tokens: tokens(text),
            at: 0,
        }
        .selector()
    }

    /// The selector of an object, with `matchLabels` and `matchExpressions`; `None` if it is
    /// absent.
    pub fn from_value(selector: &Value) -> Option<LabelSelector> {
        let exact = selector
            .as_map()?
            .get("matchLabels")
            .into_iter()
            .flat_map(Value::entries);
        let exact = exact.map(|(key, value)| (key, SelectorOperator::In(vec![value.str().into()])));
        let expressions = selector["matchExpressions"]
            .list()
            .iter()
            .map(|expression| {
                let operator = SelectorOperator::from_value(expression).filter(|operator| {
                    !matches!(
                        operator,
                        SelectorOperator::Greater(_) | SelectorOperator::Less(_)
                    )
                });
                // An unknown operator selects nothing.
                let operator = operator.unwrap_or(SelectorOperator::In(Vec::new()));
                (expression["key"].str(), operator)
            });
        let requirements = exact.chain(expressions);
        let requirements = requirements.map(|(key, operator)| Requirement {
            key: key.into(),
            operator,
        });
        Some(LabelSelector {
            requirements: requirements.collect(),
        })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether it selects an object with these labels.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl SelectorOperator {
    /// The operator of a match expression with its values; `None` if it is unknown.
    fn from_value(expression: &Value) -> Option<SelectorOperator> {
        let values = expression["values"].list().iter();
        let values = || values.map(|value| value.str().into()).collect();
        let number = || expression["values"][0].str().parse().ok();
        Some(match expression["operator"].str() {
            "In" => SelectorOperator::In(values()),
            "NotIn" => SelectorOperator::NotIn(values()),
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::Absent,
            "Gt" => SelectorOperator::Greater(number()?),
            "Lt" => SelectorOperator::Less(number()?),
            _ => return None,
        })
    }
}

impl Requirement {
    /// The requirement of a node selector, with `key`, `operator` and `values`; `None` if it is
    /// invalid. Kubernetes: `labels.NewRequirement`.
    pub fn from_value(expression: &Value) -> Option<Requirement> {
        let (key, values) = (expression["key"].str(), expression["values"].list());
        let operator = SelectorOperator::from_value(expression)?;
        let has_values = match operator {
            SelectorOperator::In(_) | SelectorOperator::NotIn(_) => !values.is_empty(),
            SelectorOperator::Exists | SelectorOperator::Absent => values.is_empty(),
            SelectorOperator::Greater(_) | SelectorOperator::Less(_) => values.len() == 1,
        };
        let is_valid = has_values
            && is_qualified_name(key).is_empty()
            && values
                .iter()
                .all(|value| is_label_value(value.str()).is_empty());
        is_valid.then(|| Requirement {
            key: key.into(),
            operator,
        })
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match &self.operator {
            SelectorOperator::In(values) => {
                label.is_some_and(|label| values.iter().any(|value| value == label))
            }
            SelectorOperator::NotIn(values) => {
                label.is_none_or(|label| values.iter().all(|value| value != label))
            }
            SelectorOperator::Exists => label.is_some(),
            SelectorOperator::Absent => label.is_none(),
            SelectorOperator::Greater(bound) => number().is_some_and(|number| number > *bound),
            SelectorOperator::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectorToken<'a> {
    End,
    /// `( ) , ! = == != < >`.
    Symbol(&'a str),
    /// `in` and `notin`, which are also valid names.
    Word(&'a str),
    Name(&'a str),
    /// An invalid sequence of symbols.
    Nonsense(&'a str),
}

impl<'a> SelectorToken<'a> {
    fn literal(self) -> String {
        match self {
            SelectorToken::End => String::new(),
            SelectorToken::Symbol(text) | SelectorToken::Word(text) | SelectorToken::Name(text) => {
                text.to_string()
            }
            SelectorToken::Nonsense(text) => format!("error expected: keyword found '{text}'"),
        }
    }

    fn name(self) -> Option<&'a str> {
        match self {
            SelectorToken::Name(text) | SelectorToken::Word(text) => Some(text),
            _ => None,
        }
    }
}

const SYMBOLS: [&str; 9] = [")", ",", "!", "==", "=", ">", "<", "!=", "("];

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn tokens(text: &str) -> Vec<SelectorToken<'_>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if is_space(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        if is_symbol(bytes[at]) {
            let (token, end) = symbol(text, start);
            tokens.push(token);
            at = end;
        } else {
            while at < bytes.len() && !is_symbol(bytes[at]) && !is_space(bytes[at]) {
                at += 1;
            }
            tokens.push(match &text[start..at] {
                word @ ("in" | "notin") => SelectorToken::Word(word),
                name => SelectorToken::Name(name),
            });
        }
    }
    tokens.push(SelectorToken::End);
    tokens
}

/// The longest symbol at `start`; invalid ones extend to the next valid symbol.
fn symbol(text: &str, start: usize) -> (SelectorToken<'_>, usize) {
    let bytes = text.as_bytes();
    let (mut end, mut known) = (start, None);
    while end < bytes.len() && is_symbol(bytes[end]) {
        if SYMBOLS.contains(&&text[start..=end]) {
            known = Some(end + 1);
        } else if known.is_some() {
            break;
        }
        end += 1;
    }
    match known {
        Some(end) => (SelectorToken::Symbol(&text[start..end]), end),
        None => (SelectorToken::Nonsense(&text[start..end]), end),
    }
}

struct SelectorParser<'a> {
    tokens: Vec<SelectorToken<'a>>,
    at: usize,
}

impl<'a> SelectorParser<'a> {
    fn peek(&self) -> SelectorToken<'a> {
        self.tokens
            .get(self.at)
            .copied()
            .unwrap_or(SelectorToken::End)
    }

    fn next(&mut self) -> SelectorToken<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                SelectorToken::Name(_) | SelectorToken::Word(_) | SelectorToken::Symbol("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                }
                SelectorToken::End => return Ok(LabelSelector { requirements }),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.literal()
                    ));
                }
            }
            match self.next() {
                SelectorToken::End => return Ok(LabelSelector { requirements }),
                SelectorToken::Symbol(",") => match self.peek() {
                    SelectorToken::Name(_)
                    | SelectorToken::Word(_)
                    | SelectorToken::Symbol("!") => {}
                    other => {
                        return Err(format!(
                            "found '{}', expected: identifier after ','",
                            other.literal()
                        ));
                    }
                },
                other => {
                    return Err(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.literal()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == SelectorToken::Symbol("!");
        if absent {
            self.next();
        }
        let token = self.next();
        let key = token
            .name()
            .ok_or_else(|| format!("found '{}', expected: identifier", token.literal()))?;
        check("<nil>", key, &is_qualified_name(key))?;
        let operator = if absent {
            SelectorOperator::Absent
        } else if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            SelectorOperator::Exists
        } else {
            self.operator(key)?
        };
        Ok(Requirement {
            key: key.into(),
            operator,
        })
    }

    fn operator(&mut self, key: &str) -> Result<SelectorOperator, String> {
        match self.next() {
            SelectorToken::Word("in") => Ok(SelectorOperator::In(self.values(key)?)),
            SelectorToken::Word("notin") => Ok(SelectorOperator::NotIn(self.values(key)?)),
            SelectorToken::Symbol("=" | "==") => Ok(SelectorOperator::In(vec![self.value(key)?])),
            SelectorToken::Symbol("!=") => Ok(SelectorOperator::NotIn(vec![self.value(key)?])),
            SelectorToken::Symbol(">") => Ok(SelectorOperator::Greater(self.number(key)?)),
            SelectorToken::Symbol("<") => Ok(SelectorOperator::Less(self.number(key)?)),
            other => Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.literal()
            )),
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.plain_value()?;
        let refuse = || {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            format!("values[0]: Invalid value: {}: {detail}", quote(value))
        };
        let number = value.parse().map_err(|_| refuse())?;
        check(&format!("values[0][{key}]"), value, &is_label_value(value))?;
        Ok(number)
    }

    fn value(&mut self, key: &str) -> Result<Str, String> {
        let value = self.plain_value()?;
        check(&format!("values[0][{key}]"), value, &is_label_value(value))?;
        Ok(value.into())
    }

    fn plain_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
            return Ok("");
        }
        let token = self.next();
        token
            .name()
            .ok_or_else(|| format!("found '{}', expected: identifier", token.literal()))
    }

    fn values(&mut self, key: &str) -> Result<Vec<Str>, String> {
        match self.next() {
            SelectorToken::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.literal())),
        }
        let mut values = match self.peek() {
            SelectorToken::Name(_) | SelectorToken::Word(_) | SelectorToken::Symbol(",") => {
                self.value_list()?
            }
            SelectorToken::Symbol(")") => vec![""],
            other => {
                return Err(format!(
                    "found '{}', expected: ',', ')' or identifier",
                    other.literal()
                ));
            }
        };
        self.next();
        values.sort_unstable();
        values.dedup();
        for (index, value) in values.iter().enumerate() {
            check(
                &format!("values[{index}][{key}]"),
                value,
                &is_label_value(value),
            )?;
        }
        Ok(values.into_iter().map(Str::from).collect())
    }

    /// Parses values up to the closing parenthesis, which is not consumed. Between two commas there
    /// is an empty value.
    fn value_list(&mut self) -> Result<Vec<&'a str>, String> {
        let mut values = Vec::new();
        loop {
            let token = self.next();
            if let Some(name) = token.name() {
                values.push(name);
                match self.peek() {
                    SelectorToken::Symbol(",") => {}
                    SelectorToken::Symbol(")") => return Ok(values),
                    other => {
                        return Err(format!("found '{}', expected: ',' or ')'", other.literal()));
                    }
                }
                continue;
            }
            if token != SelectorToken::Symbol(",") {
                return Err(format!(
                    "found '{}', expected: ',', or identifier",
                    token.literal()
                ));
            }
            if values.is_empty() {
                values.push("");
            }
            match self.peek() {
                SelectorToken::Symbol(")") => {
                    values.push("");
                    return Ok(values);
                }
                SelectorToken::Symbol(",") => values.push(""),
                _ => {}
            }
        }
    }
}

fn check(path: &str, value: &str, problems: &[String]) -> Result<(), String> {
    match problems.first() {
        None => Ok(()),
        Some(_) => Err(format!(
            "{path}: Invalid value: {}: {}",
            quote(value),
            problems.join("; ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| {
            labels
                .iter()
                .find(|label| label.0 == key)
                .map(|label| label.1)
        })
    }

    #[test]
    fn every_selector_form_matches() {
        let labels = [("app", "web"), ("size", "3")];
        for yes in [
            "",
            "app=web",
            "app==web",
            "app",
            "!old",
            "app in (web,db)",
            "app!=db",
            "size>2",
            "size<4,app",
        ] {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in [
            "app=db",
            "old",
            "!app",
            "app notin (web)",
            "size>3",
            "app in (db)",
            "app>1",
            "old in (a)",
        ] {
            assert!(!selects(no, &labels), "{no}");
        }
        assert!(selects("old notin (a),old!=b", &labels));
        assert!(selects("in=x", &[("in", "x")]));
    }

    #[test]
    fn invalid_selectors_have_upstream_errors() {
        let cases = [
            (
                "=",
                "found '=', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a in x",
                "unable to parse requirement: found 'x' expected: '('",
            ),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ];
        for (text, error) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap_err(), error, "{text}");
        }
    }
}
