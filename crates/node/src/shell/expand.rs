//! Word expansion: variables, substitutions, arithmetic, and field splitting.

use super::parse::{ParameterOperator, Word, WordPart};
use super::run::{Halt, Shell, Step};

/// The longest word.
const MAX_WORD: usize = 64 * 1024;

impl Word {
    /// Whether it has a command substitution.
    pub(super) fn substitutes(&self) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, WordPart::Command { .. }))
    }
}

impl Shell<'_> {
    pub(super) fn fields(&mut self, words: &[Word]) -> Step<Vec<String>> {
        let mut fields = Vec::new();
        for word in words {
            self.split(word, &mut fields)?;
        }
        Ok(fields)
    }

    /// A word as one text.
    pub(super) fn text(&mut self, word: &Word) -> Step<String> {
        let mut text = String::new();
        for part in &word.0 {
            text.push_str(&self.part(part)?);
            if text.len() > MAX_WORD {
                return Err(Halt::Unknown);
            }
        }
        Ok(text)
    }

    /// Unquoted expansions are split at white space; an empty one makes no field.
    fn split(&mut self, word: &Word, fields: &mut Vec<String>) -> Step<()> {
        let (mut field, mut is_open) = (String::new(), false);
        for part in &word.0 {
            let text = self.part(part)?;
            let splits = match part {
                WordPart::Text { .. } => false,
                WordPart::Variable { quoted, .. } | WordPart::Command { quoted, .. } => !quoted,
                WordPart::Arithmetic(_) => true,
            };
            if !splits {
                is_open = true;
                field.push_str(&text);
            } else {
                for c in text.chars() {
                    if matches!(c, ' ' | '\t' | '\n') {
                        if is_open {
                            fields.push(std::mem::take(&mut field));
                        }
                        is_open = false;
                    } else {
                        is_open = true;
                        field.push(c);
                    }
                }
            }
            if field.len() > MAX_WORD {
                return Err(Halt::Unknown);
            }
        }
        if is_open {
            fields.push(field);
        }
        Ok(())
    }

    fn part(&mut self, part: &WordPart) -> Step<String> {
        self.step()?;
        match part {
            WordPart::Text { text, .. } => Ok(text.clone()),
            WordPart::Variable {
                name,
                operator,
                word,
                ..
            } => self.variable(name, *operator, word),
            WordPart::Command { body, .. } => self.captured(body),
            WordPart::Arithmetic(word) => {
                let text = self.text(word)?;
                Arithmetic {
                    shell: self,
                    rest: text.as_bytes(),
                }
                .all()
                .map(|value| value.to_string())
            }
        }
    }

    fn variable(&mut self, name: &str, operator: ParameterOperator, word: &Word) -> Step<String> {
        let value = self.value(name);
        let is_set = |also_empty: bool| {
            value
                .as_ref()
                .is_some_and(|value| !also_empty || !value.is_empty())
        };
        match operator {
            ParameterOperator::Plain => Ok(value.unwrap_or_default()),
            ParameterOperator::Length => Ok(value.unwrap_or_default().chars().count().to_string()),
            ParameterOperator::Default { also_empty } if is_set(also_empty) => {
                Ok(value.unwrap_or_default())
            }
            ParameterOperator::Alternative { also_empty } if !is_set(also_empty) => {
                Ok(String::new())
            }
            ParameterOperator::Default { .. } | ParameterOperator::Alternative { .. } => {
                self.text(word)
            }
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            "?" => Some(self.status.to_string()),
            "$" => Some("1".into()),
            "#" => Some(self.parameters.len().saturating_sub(1).to_string()),
            "@" | "*" => Some(self.parameters.get(1..).unwrap_or_default().join(" ")),
            _ => match name.parse::<usize>() {
                Ok(0) => Some(self.parameters.first().map_or("sh", String::as_str).into()),
                Ok(number) => self.parameters.get(number).cloned(),
                Err(_) => self.variables.get(name).cloned(),
            },
        }
    }
}

/// Integers with the operators of C.
struct Arithmetic<'a, 'b> {
    shell: &'a Shell<'b>,
    rest: &'a [u8],
}

/// Operators by precedence, the weakest first.
const LEVELS: [&[&str]; 6] = [
    &["||"],
    &["&&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Arithmetic<'_, '_> {
    fn all(mut self) -> Step<i64> {
        let value = self.level(0)?;
        self.skip();
        if self.rest.is_empty() {
            Ok(value)
        } else {
            Err(Halt::Unknown)
        }
    }

    fn level(&mut self, level: usize) -> Step<i64> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.level(level + 1)?;
        loop {
            self.skip();
            let Some(operator) = operators
                .iter()
                .find(|operator| self.rest.starts_with(operator.as_bytes()))
            else {
                return Ok(left);
            };
            self.rest = &self.rest[operator.len()..];
            let right = self.level(level + 1)?;
            left = apply(operator, left, right).ok_or(Halt::Unknown)?;
        }
    }

    fn unary(&mut self) -> Step<i64> {
        self.skip();
        match self.rest.split_first() {
            Some((b'-', rest)) => {
                self.rest = rest;
                self.unary().map(i64::wrapping_neg)
            }
            Some((b'!', rest)) => {
                self.rest = rest;
                self.unary().map(|value| i64::from(value == 0))
            }
            Some((b'(', rest)) => {
                self.rest = rest;
                let value = self.level(0)?;
                self.skip();
                self.rest = self.rest.strip_prefix(b")").ok_or(Halt::Unknown)?;
                Ok(value)
            }
            _ => self.operand(),
        }
    }

    fn operand(&mut self) -> Step<i64> {
        let end = self
            .rest
            .iter()
            .position(|c| !c.is_ascii_alphanumeric() && *c != b'_')
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let word = std::str::from_utf8(word).map_err(|_| Halt::Unknown)?;
        let value = match word.starts_with(|c: char| c.is_ascii_digit()) {
            true => word.to_owned(),
            false if word.is_empty() => return Err(Halt::Unknown),
            false => self.shell.variables.get(word).cloned().unwrap_or_default(),
        };
        if value.is_empty() {
            Ok(0)
        } else {
            value.parse().map_err(|_| Halt::Unknown)
        }
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }
}

fn apply(operator: &str, left: i64, right: i64) -> Option<i64> {
    Some(match operator {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        _ => left.checked_rem(right)?,
    })
}
