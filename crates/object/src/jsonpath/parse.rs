//! From text to steps.

use super::{Filter, Operator, Part, PathError, Slice, Step};
use mizzen_value::Str;

/// Reads a whole template.
pub(super) fn template(text: &str) -> Result<Vec<Part>, PathError> {
    let mut actions = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        if at > 0 {
            actions.push(vec![Step::Text(rest[..at].into())]);
        }
        let mut parser = Parser {
            text: &rest[at + 1..],
            at: 0,
        };
        actions.push(parser.action()?);
        rest = &rest[at + 1 + parser.at..];
    }
    if !rest.is_empty() {
        actions.push(vec![Step::Text(rest.into())]);
    }
    Ok(nest(&mut actions.into_iter()))
}

/// Puts what stands between `{range}` and `{end}` below the range.
fn nest(actions: &mut impl Iterator<Item = Vec<Step>>) -> Vec<Part> {
    let mut parts = Vec::new();
    while let Some(mut steps) = actions.next() {
        match steps.first() {
            Some(Step::Word(word)) if word == "end" => break,
            Some(Step::Word(word)) if word == "range" => {
                steps.remove(0);
                parts.push(Part::Range(steps, nest(actions)));
            }
            _ => parts.push(Part::Action(steps)),
        }
    }
    parts
}

/// The steps of what stands inside braces.
fn steps(text: &str) -> Result<Vec<Step>, PathError> {
    let text = format!("{text}}}");
    Parser { text: &text, at: 0 }.action()
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// Reads up to and over the closing brace.
    fn action(&mut self) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.skip("}") {
                return Ok(steps);
            }
            if self.skip("[?(") {
                steps.push(self.filter()?);
            } else if self.skip("..") {
                self.recursive(&mut steps)?;
            } else {
                self.step(&mut steps)?;
            }
        }
    }

    fn step(&mut self, steps: &mut Vec<Step>) -> Result<(), PathError> {
        match self.next() {
            None | Some('\r' | '\n') => return refuse("unclosed action"),
            Some(' ' | '@' | '$') => {}
            Some('[') => self.array(steps)?,
            Some(quote @ ('"' | '\'')) => steps.push(self.quoted(quote)?),
            Some('.') => steps.push(self.field()),
            Some(char @ ('+' | '-' | '0'..='9')) => {
                self.back(char);
                steps.push(self.number()?);
            }
            Some(char) if char == '_' || char.is_alphanumeric() => {
                self.back(char);
                steps.push(self.word());
            }
            Some(char) => {
                let code = u32::from(char);
                return refuse(format!(
                    "unrecognized character in action: U+{code:04X} '{char}'"
                ));
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<char> {
        let char = self.text[self.at..].chars().next()?;
        self.at += char.len_utf8();
        Some(char)
    }

    fn back(&mut self, char: char) {
        self.at -= char.len_utf8();
    }

    fn skip(&mut self, prefix: &str) -> bool {
        let found = self.text[self.at..].starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn recursive(&mut self, steps: &mut Vec<Step>) -> Result<(), PathError> {
        if steps.last() == Some(&Step::Recursive) {
            return refuse("invalid multiple recursive descent");
        }
        steps.push(Step::Recursive);
        let next = self.text[self.at..].chars().next();
        if next.is_some_and(|char| char == '_' || char.is_alphanumeric()) {
            steps.push(self.field());
        }
        Ok(())
    }

    /// Reads a name up to a character that ends it and is not escaped.
    fn field(&mut self) -> Step {
        let start = self.at;
        while let Some(char) = self.next() {
            if char == '\\' {
                self.next();
            } else if ends_name(char) {
                self.back(char);
                break;
            }
        }
        match &self.text[start..self.at] {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "").into()),
        }
    }

    fn word(&mut self) -> Step {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(ends_name).unwrap_or(rest.len())];
        self.at += word.len();
        match word {
            "true" => Step::Bool(true),
            "false" => Step::Bool(false),
            word => Step::Word(word.into()),
        }
    }

    fn number(&mut self) -> Result<Step, PathError> {
        let rest = &self.text[self.at..];
        let sign = rest.starts_with(['+', '-']) as usize;
        let digits = rest[sign..].find(|char: char| char != '.' && !char.is_ascii_digit());
        let text = &rest[..digits.map_or(rest.len(), |length| sign + length)];
        self.at += text.len();
        if let Ok(number) = text.parse() {
            return Ok(Step::Int(number));
        }
        match text.parse() {
            Ok(number) => Ok(Step::Float(number)),
            Err(_) => refuse(format!("cannot parse number {text}")),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Step, PathError> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return refuse("unterminated quoted string"),
                Some('\\') => text.push(self.escape()?),
                Some(char) if char == quote => return Ok(Step::Text(text.into())),
                Some(char) => text.push(char),
            }
        }
    }

    fn escape(&mut self) -> Result<char, PathError> {
        Ok(match self.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(char @ ('\\' | '"' | '\'')) => char,
            _ => return refuse("unquote string error invalid syntax"),
        })
    }

    /// What stands between the bracket that was read and the next one that closes.
    fn array(&mut self, steps: &mut Vec<Step>) -> Result<(), PathError> {
        let rest = &self.text[self.at..];
        let Some(end) = rest
            .find([']', '\n'])
            .filter(|end| rest[*end..].starts_with(']'))
        else {
            return refuse("unterminated array");
        };
        let text = &rest[..end];
        self.at += end + 1;
        if text.contains(',') {
            let paths = text
                .split(',')
                .map(|path| self::steps(&format!("[{}]", path.trim_matches(' '))));
            steps.push(Step::Union(paths.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        match key.filter(|key| !key.contains('\'')) {
            // Kubernetes: a quoted key is read as a path, so that its dots must be escaped.
            Some(key) => steps.extend(self::steps(&format!(".{key}"))?),
            None => steps.push(Step::Slice(slice(if text == "*" { ":" } else { text })?)),
        }
        Ok(())
    }

    /// What follows `[?(`.
    fn filter(&mut self) -> Result<Step, PathError> {
        let start = self.at;
        let mut quote = None;
        loop {
            match (self.next(), quote) {
                (None | Some('\n'), _) => return refuse("unterminated filter"),
                (Some('\\'), Some(_)) => drop(self.next()),
                (Some(char), Some(open)) if char == open => quote = None,
                (Some(char @ ('"' | '\'')), None) => quote = Some(char),
                (Some(')'), None) => break,
                _ => {}
            }
        }
        let text = &self.text[start..self.at - 1];
        if self.next() != Some(']') {
            return refuse("unclosed array expect ]");
        }
        condition(text).map(Step::Filter)
    }
}

fn condition(text: &str) -> Result<Filter, PathError> {
    let signs = ['!', '<', '>', '='];
    let start = text.find(signs).filter(|start| *start > 0);
    let after = start.map(|start| {
        let signs = text[start..].find(|char| !signs.contains(&char));
        (start, signs.map_or(text.len(), |length| start + length))
    });
    match after.filter(|(_, end)| *end < text.len()) {
        None => Ok(Filter {
            left: steps(text)?,
            right: Vec::new(),
            operator: Operator::Exists,
        }),
        Some((start, end)) => Ok(Filter {
            left: steps(&text[..start])?,
            right: steps(&text[end..])?,
            operator: Operator::Compare(Str::from(&text[start..end])),
        }),
    }
}

fn slice(text: &str) -> Result<Slice, PathError> {
    let parts: Vec<&str> = text.split(':').collect();
    let digits = |part: &&str| {
        part.strip_prefix('-')
            .unwrap_or(part)
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(digits) {
        return refuse(format!("invalid array index {text}"));
    }
    let number = |at: usize| match parts.get(at).copied().unwrap_or_default() {
        "" => Ok(None),
        part => match part.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => refuse(format!("array index {part} is not a number")),
        },
    };
    let (start, end, step) = (number(0)?, number(1)?, number(2)?);
    let one = parts.len() == 1;
    Ok(Slice {
        start,
        end: if one {
            Some(start.unwrap_or(0) + 1)
        } else {
            end
        },
        step,
        one,
    })
}

/// Whether a character ends a name.
fn ends_name(char: char) -> bool {
    matches!(
        char,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn refuse<T>(problem: impl Into<String>) -> Result<T, PathError> {
    Err(PathError(problem.into()))
}
