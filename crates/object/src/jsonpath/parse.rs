//! The parser.

use super::{FilterOperator, PathError, PathFilter, PathStep, Slice, TemplatePart};
use mizzen_value::Str;

pub(super) fn template(text: &str) -> Result<Vec<TemplatePart>, PathError> {
    let mut actions = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        if at > 0 {
            actions.push(vec![PathStep::Text(rest[..at].into())]);
        }
        let mut parser = JsonPathParser {
            text: &rest[at + 1..],
            at: 0,
        };
        actions.push(parser.action()?);
        rest = &rest[at + 1 + parser.at..];
    }
    if !rest.is_empty() {
        actions.push(vec![PathStep::Text(rest.into())]);
    }
    Ok(nest(&mut actions.into_iter()))
}

/// Moves the actions between `{range}` and `{end}` below the range.
fn nest(actions: &mut impl Iterator<Item = Vec<PathStep>>) -> Vec<TemplatePart> {
    let mut parts = Vec::new();
    while let Some(mut steps) = actions.next() {
        match steps.first() {
            Some(PathStep::Word(word)) if word == "end" => break,
            Some(PathStep::Word(word)) if word == "range" => {
                steps.remove(0);
                parts.push(TemplatePart::Range(steps, nest(actions)));
            }
            _ => parts.push(TemplatePart::Action(steps)),
        }
    }
    parts
}

/// Parses the content of braces.
fn steps(text: &str) -> Result<Vec<PathStep>, PathError> {
    let text = format!("{text}}}");
    JsonPathParser { text: &text, at: 0 }.action()
}

struct JsonPathParser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonPathParser<'a> {
    /// Parses up to and including the closing brace.
    fn action(&mut self) -> Result<Vec<PathStep>, PathError> {
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

    fn step(&mut self, steps: &mut Vec<PathStep>) -> Result<(), PathError> {
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

    fn recursive(&mut self, steps: &mut Vec<PathStep>) -> Result<(), PathError> {
        if steps.last() == Some(&PathStep::Recursive) {
            return refuse("invalid multiple recursive descent");
        }
        steps.push(PathStep::Recursive);
        let next = self.text[self.at..].chars().next();
        if next.is_some_and(|char| char == '_' || char.is_alphanumeric()) {
            steps.push(self.field());
        }
        Ok(())
    }

    /// Parses a name up to an unescaped delimiter.
    fn field(&mut self) -> PathStep {
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
            "*" => PathStep::Wildcard,
            name => PathStep::Field(name.replace('\\', "").into()),
        }
    }

    fn word(&mut self) -> PathStep {
        let rest = &self.text[self.at..];
        let word = &rest[..rest.find(ends_name).unwrap_or(rest.len())];
        self.at += word.len();
        match word {
            "true" => PathStep::Bool(true),
            "false" => PathStep::Bool(false),
            word => PathStep::Word(word.into()),
        }
    }

    fn number(&mut self) -> Result<PathStep, PathError> {
        let rest = &self.text[self.at..];
        let sign = rest.starts_with(['+', '-']) as usize;
        let digits = rest[sign..].find(|char: char| char != '.' && !char.is_ascii_digit());
        let text = &rest[..digits.map_or(rest.len(), |length| sign + length)];
        self.at += text.len();
        if let Ok(number) = text.parse() {
            return Ok(PathStep::Int(number));
        }
        match text.parse() {
            Ok(number) => Ok(PathStep::Float(number)),
            Err(_) => refuse(format!("cannot parse number {text}")),
        }
    }

    fn quoted(&mut self, quote: char) -> Result<PathStep, PathError> {
        let mut text = String::new();
        loop {
            match self.next() {
                None | Some('\n') => return refuse("unterminated quoted string"),
                Some('\\') => text.push(self.escape()?),
                Some(char) if char == quote => return Ok(PathStep::Text(text.into())),
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

    /// Parses the content of brackets.
    fn array(&mut self, steps: &mut Vec<PathStep>) -> Result<(), PathError> {
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
            steps.push(PathStep::Union(paths.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text
            .strip_prefix('\'')
            .and_then(|text| text.strip_suffix('\''));
        match key.filter(|key| !key.contains('\'')) {
            // Kubernetes: a quoted key is parsed as a path, so its dots must be escaped.
            Some(key) => steps.extend(self::steps(&format!(".{key}"))?),
            None => steps.push(PathStep::Slice(Slice::parse(if text == "*" {
                ":"
            } else {
                text
            })?)),
        }
        Ok(())
    }

    /// Parses a filter after `[?(`.
    fn filter(&mut self) -> Result<PathStep, PathError> {
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
        PathFilter::parse(text).map(PathStep::Filter)
    }
}

impl PathFilter {
    fn parse(text: &str) -> Result<PathFilter, PathError> {
        let signs = ['!', '<', '>', '='];
        let start = text.find(signs).filter(|start| *start > 0);
        let after = start.map(|start| {
            let signs = text[start..].find(|char| !signs.contains(&char));
            (start, signs.map_or(text.len(), |length| start + length))
        });
        match after.filter(|(_, end)| *end < text.len()) {
            None => Ok(PathFilter {
                left: steps(text)?,
                right: Vec::new(),
                operator: FilterOperator::Exists,
            }),
            Some((start, end)) => Ok(PathFilter {
                left: steps(&text[..start])?,
                right: steps(&text[end..])?,
                operator: FilterOperator::Compare(Str::from(&text[start..end])),
            }),
        }
    }
}

impl Slice {
    fn parse(text: &str) -> Result<Slice, PathError> {
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
}

fn ends_name(char: char) -> bool {
    matches!(
        char,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}

fn refuse<T>(problem: impl Into<String>) -> Result<T, PathError> {
    Err(PathError(problem.into()))
}
