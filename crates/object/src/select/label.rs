//! Label selectors in their text form: `app=web,tier in (a,b),!old,size>3`.

use crate::validate::names::{is_label_value, is_qualified_name};
use mizzen_value::json::quote;
use mizzen_value::{Str, Value};

/// What must hold of an object's labels, all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// The conditions.
    pub requirements: Vec<Requirement>,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: Str,
    /// The condition.
    pub operator: Operator,
}

/// The condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// The label is one of these. One value for `=`.
    In(Vec<Str>),
    /// The label is absent, or none of these.
    NotIn(Vec<Str>),
    /// The label is there.
    Exists,
    /// The label is absent.
    Absent,
    /// The label is a number greater than this.
    Greater(i64),
    /// The label is a number less than this.
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector; the error is worded for the client.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        Parser {
            tokens: tokens(text),
            at: 0,
        }
        .selector()
    }

    /// A selector as objects have it, with `matchLabels` and `matchExpressions`; none where there is none.
    pub fn of(selector: &Value) -> Option<LabelSelector> {
        let exact = selector
            .as_map()?
            .get("matchLabels")
            .into_iter()
            .flat_map(Value::entries);
        let exact = exact.map(|(key, value)| (key, Operator::In(vec![value.str().into()])));
        let expressions = selector["matchExpressions"]
            .list()
            .iter()
            .map(|expression| {
                let operator = Operator::of(expression).filter(|operator| {
                    !matches!(operator, Operator::Greater(_) | Operator::Less(_))
                });
                // What is no operator of label selectors selects nothing.
                let operator = operator.unwrap_or(Operator::In(Vec::new()));
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

impl Operator {
    /// The operator of an expression, by the name that objects use, with its values; none if there is no such operator.
    fn of(expression: &Value) -> Option<Operator> {
        let values = expression["values"].list().iter();
        let values = || values.map(|value| value.str().into()).collect();
        let number = || expression["values"][0].str().parse().ok();
        Some(match expression["operator"].str() {
            "In" => Operator::In(values()),
            "NotIn" => Operator::NotIn(values()),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::Absent,
            "Gt" => Operator::Greater(number()?),
            "Lt" => Operator::Less(number()?),
            _ => return None,
        })
    }
}

impl Requirement {
    /// A requirement as node selectors have it, with `key`, `operator` and `values`; none if it is not valid.
    /// Kubernetes: `labels.NewRequirement`.
    pub fn of(expression: &Value) -> Option<Requirement> {
        let (key, values) = (expression["key"].str(), expression["values"].list());
        let operator = Operator::of(expression)?;
        let has_values = match operator {
            Operator::In(_) | Operator::NotIn(_) => !values.is_empty(),
            Operator::Exists | Operator::Absent => values.is_empty(),
            Operator::Greater(_) | Operator::Less(_) => values.len() == 1,
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
            Operator::In(values) => {
                label.is_some_and(|label| values.iter().any(|value| value == label))
            }
            Operator::NotIn(values) => {
                label.is_none_or(|label| values.iter().all(|value| value != label))
            }
            Operator::Exists => label.is_some(),
            Operator::Absent => label.is_none(),
            Operator::Greater(bound) => number().is_some_and(|number| number > *bound),
            Operator::Less(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// `( ) , ! = == != < >`.
    Symbol(&'a str),
    /// `in` and `notin`, which are also names where a name is expected.
    Word(&'a str),
    Name(&'a str),
    /// Symbols that mean nothing together.
    Nonsense(&'a str),
}

impl<'a> Token<'a> {
    fn literal(self) -> String {
        match self {
            Token::End => String::new(),
            Token::Symbol(text) | Token::Word(text) | Token::Name(text) => text.to_string(),
            Token::Nonsense(text) => format!("error expected: keyword found '{text}'"),
        }
    }

    fn name(self) -> Option<&'a str> {
        match self {
            Token::Name(text) | Token::Word(text) => Some(text),
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

fn tokens(text: &str) -> Vec<Token<'_>> {
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
                word @ ("in" | "notin") => Token::Word(word),
                name => Token::Name(name),
            });
        }
    }
    tokens.push(Token::End);
    tokens
}

/// The longest symbol that begins at `start`; symbols that mean nothing are taken until one does.
fn symbol(text: &str, start: usize) -> (Token<'_>, usize) {
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
        Some(end) => (Token::Symbol(&text[start..end]), end),
        None => (Token::Nonsense(&text[start..end]), end),
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Name(_) | Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                }
                Token::End => return Ok(LabelSelector { requirements }),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.literal()
                    ));
                }
            }
            match self.next() {
                Token::End => return Ok(LabelSelector { requirements }),
                Token::Symbol(",") => match self.peek() {
                    Token::Name(_) | Token::Word(_) | Token::Symbol("!") => {}
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
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.next();
        }
        let token = self.next();
        let key = token
            .name()
            .ok_or_else(|| format!("found '{}', expected: identifier", token.literal()))?;
        check("<nil>", key, &is_qualified_name(key))?;
        let operator = if absent {
            Operator::Absent
        } else if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            Operator::Exists
        } else {
            self.operator(key)?
        };
        Ok(Requirement {
            key: key.into(),
            operator,
        })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        match self.next() {
            Token::Word("in") => Ok(Operator::In(self.values(key)?)),
            Token::Word("notin") => Ok(Operator::NotIn(self.values(key)?)),
            Token::Symbol("=" | "==") => Ok(Operator::In(vec![self.value(key)?])),
            Token::Symbol("!=") => Ok(Operator::NotIn(vec![self.value(key)?])),
            Token::Symbol(">") => Ok(Operator::Greater(self.number(key)?)),
            Token::Symbol("<") => Ok(Operator::Less(self.number(key)?)),
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
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        let token = self.next();
        token
            .name()
            .ok_or_else(|| format!("found '{}', expected: identifier", token.literal()))
    }

    fn values(&mut self, key: &str) -> Result<Vec<Str>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.literal())),
        }
        let mut values = match self.peek() {
            Token::Name(_) | Token::Word(_) | Token::Symbol(",") => self.value_list()?,
            Token::Symbol(")") => vec![""],
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

    /// Names up to the closing parenthesis, which is left. Two commas in a row have "" between them.
    fn value_list(&mut self) -> Result<Vec<&'a str>, String> {
        let mut values = Vec::new();
        loop {
            let token = self.next();
            if let Some(name) = token.name() {
                values.push(name);
                match self.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Ok(values),
                    other => {
                        return Err(format!("found '{}', expected: ',' or ')'", other.literal()));
                    }
                }
                continue;
            }
            if token != Token::Symbol(",") {
                return Err(format!(
                    "found '{}', expected: ',', or identifier",
                    token.literal()
                ));
            }
            if values.is_empty() {
                values.push("");
            }
            match self.peek() {
                Token::Symbol(")") => {
                    values.push("");
                    return Ok(values);
                }
                Token::Symbol(",") => values.push(""),
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
    fn every_form_selects_what_it_says() {
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
    fn nonsense_is_refused_in_upstream_words() {
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
