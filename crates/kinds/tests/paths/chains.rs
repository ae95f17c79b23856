//! Which fields does a source name? Chains of names, each as long as it is written in one expression.

use std::fmt;

use super::lexer::{Kind, Token, tokens};

/// Names that follow each other: of a look-up, or of a field in a literal object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chain {
    /// The line on which it begins.
    pub(crate) line: usize,
    /// The word before it; empty if there is none.
    pub(crate) receiver: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// `["name"]`, `.entry("name")` and the like.
    Name(String),
    /// `[0]`.
    Item,
    /// `[name]`: any field, member or item.
    Any,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|step| match step {
            Step::Name(name) => name,
            Step::Item => "0",
            Step::Any => "*",
        });
        f.write_str(&steps.collect::<Vec<_>>().join("."))
    }
}

/// Methods whose first argument names a member.
const MEMBER: [&str; 8] = [
    "at",
    "at_mut",
    "entry",
    "get",
    "get_mut",
    "remove",
    "set",
    "set_default",
];
/// Methods that lead to the same place.
const SAME: [&str; 6] = [
    "as_ref",
    "clone",
    "list",
    "list_mut",
    "make_list",
    "unwrap_or_default",
];
/// Words before a bracket that begins a list and no look-up.
const KEYWORDS: [&str; 8] = [
    "else", "if", "in", "match", "move", "mut", "return", "while",
];

/// The chains of a source, without those of its tests.
pub(crate) fn chains(source: &str) -> Vec<Chain> {
    let end = source.find("#[cfg(test)]\nmod tests {");
    let tokens = tokens(&source[..end.unwrap_or(source.len())]);
    let (mut chains, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if is_literal(&tokens[at..]) {
            let mut literal = Literal {
                tokens: &tokens,
                chains: &mut chains,
            };
            literal.read(at + 3, &[]);
        }
        let (steps, next) = look_up(&tokens, at);
        if steps.iter().any(|step| matches!(step, Step::Name(_))) {
            let receiver = match at.checked_sub(1).map(|before| &tokens[before].kind) {
                Some(Kind::Word(word)) => word.clone(),
                _ => String::new(),
            };
            chains.push(Chain {
                line: tokens[at].line,
                receiver,
                steps,
            });
        }
        at = next.max(at + 1);
    }
    chains
}

/// The steps of the look-up that begins at a token, and where it ends.
fn look_up(tokens: &[Token], start: usize) -> (Vec<Step>, usize) {
    let (mut steps, mut at) = (Vec::new(), start);
    while let Some((found, next)) = steps_at(tokens, at) {
        steps.extend(found);
        at = next;
    }
    (steps, at)
}

/// The steps that one pair of brackets or one call stands for, and what follows it.
fn steps_at(tokens: &[Token], at: usize) -> Option<(Vec<Step>, usize)> {
    let kind = |offset: usize| tokens.get(at + offset).map(|token| &token.kind);
    let name = |text: &str| Step::Name(text.to_owned());
    match (kind(0)?, kind(1)?) {
        (Kind::Mark('['), _) if !is_index(tokens, at) => None,
        (Kind::Mark('['), Kind::Text(text)) if kind(2) == Some(&Kind::Mark(']')) => {
            Some((vec![name(text)], at + 3))
        }
        (Kind::Mark('['), Kind::Number) if kind(2) == Some(&Kind::Mark(']')) => {
            Some((vec![Step::Item], at + 3))
        }
        (Kind::Mark('['), _) => Some((vec![Step::Any], closing(tokens, at)? + 1)),
        (Kind::Mark('?'), _) if at > 0 => Some((Vec::new(), at + 1)),
        (Kind::Mark('.'), Kind::Word(method)) if kind(2) == Some(&Kind::Mark('(')) => {
            let next = closing(tokens, at + 2)? + 1;
            match (method.as_str(), kind(3)?) {
                ("at" | "at_mut", Kind::Text(text)) => {
                    Some((text.split('.').map(name).collect(), next))
                }
                // What is set may have chains of its own.
                ("set" | "set_default", Kind::Text(text)) => Some((vec![name(text)], at + 4)),
                (method, Kind::Text(text)) if MEMBER.contains(&method) => {
                    Some((vec![name(text)], next))
                }
                (method, Kind::Mark(')')) if SAME.contains(&method) => Some((Vec::new(), next)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a bracket comes after an expression.
fn is_index(tokens: &[Token], at: usize) -> bool {
    match at.checked_sub(1).map(|before| &tokens[before].kind) {
        Some(Kind::Word(word)) => !KEYWORDS.contains(&word.as_str()),
        Some(Kind::Mark(mark)) => matches!(mark, ')' | ']' | '?'),
        _ => false,
    }
}

/// Where the bracket at a token is closed.
fn closing(tokens: &[Token], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.kind {
            Kind::Mark('(' | '[' | '{') => depth += 1,
            Kind::Mark(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(index);
        }
    }
    None
}

/// Whether tokens begin with `value!(`.
fn is_literal(tokens: &[Token]) -> bool {
    let mut kinds = tokens.iter().map(|token| &token.kind);
    matches!(kinds.next(), Some(Kind::Word(word)) if word == "value")
        && kinds.next() == Some(&Kind::Mark('!'))
        && kinds.next() == Some(&Kind::Mark('('))
}

/// An object or list in `value!`.
struct Literal<'a> {
    tokens: &'a [Token],
    chains: &'a mut Vec<Chain>,
}

impl Literal<'_> {
    fn kind(&self, at: usize) -> Option<&Kind> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    /// Reads the value at a token, which stands at `path`; where it ends.
    fn read(&mut self, at: usize, path: &[Step]) -> usize {
        match self.kind(at) {
            Some(Kind::Mark('{')) => self.object(at + 1, path),
            Some(Kind::Mark('[')) => {
                let path = [path, &[Step::Item]].concat();
                let mut at = at + 1;
                while !matches!(self.kind(at), Some(Kind::Mark(']')) | None) {
                    at = self.past_comma(at, &path);
                }
                at + 1
            }
            _ => self.expression(at),
        }
    }

    fn object(&mut self, mut at: usize, path: &[Step]) -> usize {
        while !matches!(self.kind(at), Some(Kind::Mark('}')) | None) {
            let Some(Kind::Text(name)) = self.kind(at) else {
                let end = self.expression(at);
                at = end + usize::from(self.kind(end) == Some(&Kind::Mark(',')));
                continue;
            };
            let path = [path, &[Step::Name(name.clone())]].concat();
            // The items of a list that is a root of its own are roots, too.
            let n_items = path.iter().take_while(|step| **step == Step::Item).count();
            self.chains.push(Chain {
                line: self.tokens[at].line,
                receiver: String::new(),
                steps: path[n_items..].to_vec(),
            });
            at = self.past_comma(at + 2, &path);
        }
        at + 1
    }

    fn past_comma(&mut self, at: usize, path: &[Step]) -> usize {
        let end = self.read(at, path);
        end + usize::from(self.kind(end) == Some(&Kind::Mark(',')))
    }

    /// Where the expression at a token ends.
    fn expression(&self, mut at: usize) -> usize {
        while let Some(kind) = self.kind(at) {
            match kind {
                Kind::Mark('(' | '[' | '{') => match closing(self.tokens, at) {
                    Some(end) => at = end,
                    None => return self.tokens.len(),
                },
                Kind::Mark(')' | ']' | '}' | ',') => return at,
                _ => {}
            }
            at += 1;
        }
        at
    }
}
