//! Text to syntax tree: the part of the POSIX shell's grammar that needs no other process.

use std::iter::Peekable;
use std::vec::IntoIter;

/// How deeply a script may nest.
const MAX_DEPTH: usize = 50;

/// A script that can be run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    pub(super) body: Node,
    /// `$0`, `$1` and so on.
    pub(super) parameters: Vec<String>,
    /// `-e`: the first command that fails ends the script.
    pub(super) exits_on_error: bool,
}

/// A part of a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// Assignments and words, with what becomes of the output.
    Command {
        assignments: Vec<(String, Word)>,
        words: Vec<Word>,
        output: Output,
        errors: Errors,
    },
    /// One after the other.
    Sequence(Vec<Node>),
    /// `a && b`
    And(Box<Node>, Box<Node>),
    /// `a || b`
    Or(Box<Node>, Box<Node>),
    /// `! a`
    Not(Box<Node>),
    /// Conditions with their bodies, and what is done otherwise.
    If(Vec<(Node, Node)>, Option<Box<Node>>),
    /// `while`, or `until`.
    Loop {
        until: bool,
        condition: Box<Node>,
        body: Box<Node>,
    },
    /// `for name in words`
    For {
        name: String,
        words: Vec<Word>,
        body: Box<Node>,
    },
    /// `( … )`: variables and `exit` stay inside.
    Subshell(Box<Node>),
}

/// Where a command's output goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Output {
    /// To the log.
    #[default]
    Log,
    /// To stderr.
    Errors,
    /// To `/dev/null`.
    Discarded,
    /// To a file, which the simulation does not keep.
    File,
}

/// Where a command's errors go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Errors {
    /// To stderr.
    #[default]
    Own,
    /// To where the output goes.
    Output,
    /// To `/dev/null`.
    Discarded,
}

/// A word before it is expanded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Word(pub Vec<Part>);

/// A part of a word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text {
        text: String,
        quoted: bool,
    },
    /// `$name`, or `${name:-word}` and its like.
    Variable {
        name: String,
        operator: Operator,
        word: Word,
        quoted: bool,
    },
    /// `$(…)`
    Command {
        body: Node,
        quoted: bool,
    },
    /// `$((…))`
    Arithmetic(Word),
}

/// What is done with a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Plain,
    /// `:-`, `-`: the word where it is unset (or empty).
    Default {
        also_empty: bool,
    },
    /// `:+`, `+`: the word where it is set (and not empty).
    Alternative {
        also_empty: bool,
    },
    /// `#name`: the length.
    Length,
}

/// A script that is not within the grammar.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not understood")]
pub(super) struct ParseError(String);

impl ParseError {
    /// Whether more text might make a script of it.
    pub(super) fn is_incomplete(&self) -> bool {
        self.0 == "None" || self.0.starts_with("an open ")
    }
}

type Parsed<T> = Result<T, ParseError>;

impl Script {
    /// A single command, its words taken as they are.
    pub(super) fn of_words(words: &[String]) -> Script {
        let word = |text: &String| {
            Word(vec![Part::Text {
                text: text.clone(),
                quoted: true,
            }])
        };
        let body = Node::Command {
            assignments: vec![],
            words: words.iter().map(word).collect(),
            output: Output::Log,
            errors: Errors::Own,
        };
        Script {
            body,
            parameters: vec![],
            exits_on_error: false,
        }
    }

    /// Parses the text of `sh -c`; `parameters` are `$0` and those that follow it.
    pub(super) fn parse(text: &str, parameters: &[String]) -> Parsed<Script> {
        let tokens = Lexer {
            rest: text.chars().collect::<Vec<_>>().into_iter().peekable(),
            depth: 0,
        }
        .tokens(None)?;
        let mut parser = Parser {
            tokens: tokens.into_iter().peekable(),
            depth: 0,
        };
        let body = parser.list(&[])?;
        match parser.tokens.next() {
            None => Ok(Script {
                body,
                parameters: parameters.to_vec(),
                exits_on_error: false,
            }),
            Some(token) => Err(ParseError(format!("{token:?}"))),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(Word),
    /// `;`, `&&`, `||`, `(`, `)`, `;;`, and `\n`.
    Operator(&'static str),
    Redirect {
        /// Whether it is that of stderr.
        of_errors: bool,
        to: Destination,
    },
}

/// What output is redirected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Null,
    Stdout,
    Stderr,
    File,
}

struct Lexer {
    rest: Peekable<IntoIter<char>>,
    depth: usize,
}

impl Lexer {
    /// Everything up to the end, or to a closing parenthesis.
    fn tokens(&mut self, end: Option<char>) -> Parsed<Vec<Token>> {
        if self.depth > MAX_DEPTH {
            return Err(ParseError("a script that nests so deeply".into()));
        }
        let (mut tokens, mut open) = (Vec::new(), 0);
        loop {
            let Some(&next) = self.rest.peek() else {
                return if end.is_none() {
                    Ok(tokens)
                } else {
                    Err(ParseError("an open $(".into()))
                };
            };
            match next {
                ')' if end == Some(')') && open == 0 => {
                    self.rest.next();
                    return Ok(tokens);
                }
                ' ' | '\t' | '\r' => drop(self.rest.next()),
                '#' => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '\n' | ';' | '&' | '|' | '(' | ')' => {
                    let operator = self.operator()?;
                    open += i32::from(operator == "(") - i32::from(operator == ")");
                    tokens.push(Token::Operator(operator));
                }
                '<' => return Err(ParseError("an input redirection".into())),
                '>' => tokens.push(self.redirect(false)?),
                '1' | '2' if self.is_redirect() => {
                    let of_errors = self.rest.next() == Some('2');
                    tokens.push(self.redirect(of_errors)?);
                }
                _ => tokens.push(Token::Word(self.word()?)),
            }
        }
    }

    fn operator(&mut self) -> Parsed<&'static str> {
        let first = self.rest.next().unwrap_or_default();
        let mut doubled = || self.rest.next_if_eq(&first).is_some();
        match first {
            '\n' => Ok("\n"),
            '(' => Ok("("),
            ')' => Ok(")"),
            ';' if doubled() => Err(ParseError("case".into())),
            ';' => Ok(";"),
            '&' if doubled() => Ok("&&"),
            '&' => Err(ParseError("a background job".into())),
            _ if doubled() => Ok("||"),
            _ => Err(ParseError("a pipe".into())),
        }
    }

    /// Whether a digit is the descriptor of a redirection.
    fn is_redirect(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next();
        ahead.next() == Some('>')
    }

    fn redirect(&mut self, of_errors: bool) -> Parsed<Token> {
        self.rest.next();
        self.rest.next_if_eq(&'>');
        if self.rest.next_if_eq(&'&').is_some() {
            let to = match self.rest.next_if(|c| "12".contains(*c)) {
                Some('1') => Destination::Stdout,
                Some(_) => Destination::Stderr,
                None => return Err(ParseError(">&".into())),
            };
            return Ok(Token::Redirect { of_errors, to });
        }
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let target = self.word()?;
        let to = match target.0.as_slice() {
            [Part::Text { text, .. }] => match text.as_str() {
                "/dev/null" => Destination::Null,
                "/dev/stdout" | "/proc/1/fd/1" | "/proc/self/fd/1" => Destination::Stdout,
                "/dev/stderr" => Destination::Stderr,
                _ => Destination::File,
            },
            _ => Destination::File,
        };
        Ok(Token::Redirect { of_errors, to })
    }

    fn word(&mut self) -> Parsed<Word> {
        let mut word = Word::default();
        while let Some(&next) = self.rest.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\'' => {
                    self.rest.next();
                    word.push(&self.until('\'')?, true);
                }
                '"' => {
                    self.rest.next();
                    self.double_quoted(&mut word)?;
                }
                '\\' => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') | None => {}
                        Some(escaped) => word.push(&escaped.to_string(), true),
                    }
                }
                '$' => self.dollar(&mut word, false)?,
                '`' => return Err(ParseError("`".into())),
                _ => {
                    self.rest.next();
                    word.push(&next.to_string(), false);
                }
            }
        }
        Ok(word)
    }

    fn until(&mut self, end: char) -> Parsed<String> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                Some(c) if c == end => return Ok(text),
                Some(c) => text.push(c),
                None => return Err(ParseError(format!("an open {end}"))),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Parsed<()> {
        word.push("", true);
        loop {
            match self.rest.peek() {
                None => return Err(ParseError("an open \"".into())),
                Some('"') => {
                    self.rest.next();
                    return Ok(());
                }
                Some('`') => return Err(ParseError("`".into())),
                Some('$') => self.dollar(word, true)?,
                Some('\\') => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.push(&c.to_string(), true),
                        Some(c) => word.push(&format!("\\{c}"), true),
                        None => return Err(ParseError("an open \"".into())),
                    }
                }
                Some(_) => {
                    let text = self.rest.next().unwrap_or_default().to_string();
                    word.push(&text, true);
                }
            }
        }
    }

    fn dollar(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        self.rest.next();
        let part = match self.rest.peek().copied() {
            Some('(') => {
                self.rest.next();
                if self.rest.next_if_eq(&'(').is_some() {
                    self.arithmetic()?
                } else {
                    self.substitution(quoted)?
                }
            }
            Some('{') => {
                self.rest.next();
                self.braced(quoted)?
            }
            Some(c) if is_name_start(c) => {
                let mut name = String::new();
                while let Some(c) = self
                    .rest
                    .next_if(|c| is_name_start(*c) || c.is_ascii_digit())
                {
                    name.push(c);
                }
                Part::Variable {
                    name,
                    operator: Operator::Plain,
                    word: Word::default(),
                    quoted,
                }
            }
            Some(c @ ('?' | '#' | '$' | '@' | '*' | '0'..='9')) => {
                self.rest.next();
                Part::Variable {
                    name: c.to_string(),
                    operator: Operator::Plain,
                    word: Word::default(),
                    quoted,
                }
            }
            _ => Part::Text {
                text: "$".into(),
                quoted: true,
            },
        };
        word.0.push(part);
        Ok(())
    }

    fn substitution(&mut self, quoted: bool) -> Parsed<Part> {
        self.depth += 1;
        let tokens = self.tokens(Some(')'))?;
        self.depth -= 1;
        let mut parser = Parser {
            tokens: tokens.into_iter().peekable(),
            depth: self.depth,
        };
        let body = parser.list(&[])?;
        match parser.tokens.next() {
            None => Ok(Part::Command { body, quoted }),
            Some(token) => Err(ParseError(format!("{token:?}"))),
        }
    }

    fn arithmetic(&mut self) -> Parsed<Part> {
        let (mut word, mut open) = (Word::default(), 0);
        loop {
            match self.rest.peek().copied() {
                None => return Err(ParseError("an open $((".into())),
                Some(')') if open == 0 => {
                    self.rest.next();
                    return match self.rest.next() {
                        Some(')') => Ok(Part::Arithmetic(word)),
                        _ => Err(ParseError("an open $((".into())),
                    };
                }
                Some('$') => self.dollar(&mut word, true)?,
                Some(c) => {
                    open += i32::from(c == '(') - i32::from(c == ')');
                    self.rest.next();
                    word.push(&c.to_string(), true);
                }
            }
        }
    }

    fn braced(&mut self, quoted: bool) -> Parsed<Part> {
        let is_length = self.rest.next_if_eq(&'#').is_some();
        let mut name = String::new();
        while let Some(c) = self
            .rest
            .next_if(|c| is_name_start(*c) || c.is_ascii_digit() || (*c == '?'))
        {
            name.push(c);
        }
        let also_empty = self.rest.next_if_eq(&':').is_some();
        let operator = match self.rest.next() {
            Some('}') if is_length && !also_empty => Operator::Length,
            Some('}') if !also_empty => Operator::Plain,
            Some('-') => Operator::Default { also_empty },
            Some('+') => Operator::Alternative { also_empty },
            other => {
                return Err(ParseError(format!(
                    "${{{name}{}",
                    other.unwrap_or_default()
                )));
            }
        };
        let mut word = Word::default();
        if matches!(
            operator,
            Operator::Default { .. } | Operator::Alternative { .. }
        ) {
            loop {
                match self.rest.peek().copied() {
                    None => return Err(ParseError("an open ${".into())),
                    Some('}') => {
                        self.rest.next();
                        break;
                    }
                    Some('$') => self.dollar(&mut word, quoted)?,
                    Some(c @ ('"' | '\'')) => {
                        self.rest.next();
                        let text = self.until(c)?;
                        word.push(&text, true);
                    }
                    Some(c) => {
                        self.rest.next();
                        word.push(&c.to_string(), quoted);
                    }
                }
            }
        }
        if name.is_empty() {
            return Err(ParseError("${}".into()));
        }
        Ok(Part::Variable {
            name,
            operator,
            word,
            quoted,
        })
    }
}

impl Word {
    fn push(&mut self, more: &str, is_quoted: bool) {
        match self.0.last_mut() {
            Some(Part::Text { text, quoted }) if *quoted == is_quoted => text.push_str(more),
            _ => self.0.push(Part::Text {
                text: more.into(),
                quoted: is_quoted,
            }),
        }
    }

    /// Its text if nothing in it is quoted or expanded: only then it can be a keyword.
    fn keyword(&self) -> Option<&str> {
        match self.0.as_slice() {
            [
                Part::Text {
                    text,
                    quoted: false,
                },
            ] => Some(text),
            _ => None,
        }
    }

    /// `name=value` taken apart.
    fn assignment(&self) -> Option<(String, Word)> {
        let Some(Part::Text {
            text,
            quoted: false,
        }) = self.0.first()
        else {
            return None;
        };
        let (name, value) = text.split_once('=')?;
        let mut letters = name.chars();
        if !letters.next().is_some_and(is_name_start)
            || !letters.all(|c| is_name_start(c) || c.is_ascii_digit())
        {
            return None;
        }
        let first = Part::Text {
            text: value.into(),
            quoted: false,
        };
        Some((
            name.into(),
            Word(
                [first]
                    .into_iter()
                    .chain(self.0.iter().skip(1).cloned())
                    .collect(),
            ),
        ))
    }
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    depth: usize,
}

impl Parser {
    /// Commands up to one of the keywords, which is left where it is, or to the end.
    fn list(&mut self, ends: &[&str]) -> Parsed<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseError("a script that nests so deeply".into()));
        }
        let mut nodes = Vec::new();
        loop {
            while self.operator(&[";", "\n"]).is_some() {}
            let is_end = match self.tokens.peek() {
                None | Some(Token::Operator(")")) => true,
                Some(Token::Word(word)) => word.keyword().is_some_and(|word| ends.contains(&word)),
                Some(_) => false,
            };
            if is_end {
                self.depth -= 1;
                return Ok(Node::Sequence(nodes));
            }
            nodes.push(self.and_or()?);
            if !matches!(
                self.tokens.peek(),
                None | Some(Token::Operator(";" | "\n" | ")"))
            ) {
                return Err(ParseError(format!("{:?}", self.tokens.peek())));
            }
        }
    }

    fn and_or(&mut self) -> Parsed<Node> {
        let mut node = self.negated()?;
        while let Some(operator) = self.operator(&["&&", "||"]) {
            while self.operator(&["\n"]).is_some() {}
            let (left, right) = (Box::new(node), Box::new(self.negated()?));
            node = if operator == "&&" {
                Node::And(left, right)
            } else {
                Node::Or(left, right)
            };
        }
        Ok(node)
    }

    fn negated(&mut self) -> Parsed<Node> {
        if self.keyword(&["!"]).is_some() {
            return Ok(Node::Not(Box::new(self.negated()?)));
        }
        self.command()
    }

    fn command(&mut self) -> Parsed<Node> {
        if self.operator(&["("]).is_some() {
            let body = self.list(&[])?;
            return match self.operator(&[")"]) {
                Some(_) => Ok(Node::Subshell(Box::new(body))),
                None => Err(ParseError("an open (".into())),
            };
        }
        match self.keyword(&["if", "while", "until", "for", "{", "case", "function"]) {
            Some("if") => self.conditional(),
            Some("while") => self.turns(false),
            Some("until") => self.turns(true),
            Some("for") => self.each(),
            Some("{") => {
                let body = self.list(&["}"])?;
                self.expect("}")?;
                Ok(body)
            }
            Some(other) => Err(ParseError(other.into())),
            None => self.simple(),
        }
    }

    fn conditional(&mut self) -> Parsed<Node> {
        let mut branches = Vec::new();
        loop {
            let condition = self.list(&["then"])?;
            self.expect("then")?;
            branches.push((condition, self.list(&["elif", "else", "fi"])?));
            match self.keyword(&["elif", "else", "fi"]) {
                Some("elif") => {}
                Some("else") => {
                    let otherwise = self.list(&["fi"])?;
                    self.expect("fi")?;
                    return Ok(Node::If(branches, Some(Box::new(otherwise))));
                }
                Some(_) => return Ok(Node::If(branches, None)),
                None => return Err(ParseError("an open if".into())),
            }
        }
    }

    fn turns(&mut self, until: bool) -> Parsed<Node> {
        let condition = Box::new(self.list(&["do"])?);
        Ok(Node::Loop {
            until,
            condition,
            body: Box::new(self.body()?),
        })
    }

    fn each(&mut self) -> Parsed<Node> {
        let name = match self.tokens.next() {
            Some(Token::Word(word)) => word.keyword().map(String::from),
            _ => None,
        };
        let name = name.ok_or_else(|| ParseError("for".into()))?;
        self.expect("in")?;
        let mut words = Vec::new();
        while let Some(Token::Word(_)) = self.tokens.peek() {
            if let Some(Token::Word(word)) = self.tokens.next() {
                words.push(word);
            }
        }
        while self.operator(&[";", "\n"]).is_some() {}
        Ok(Node::For {
            name,
            words,
            body: Box::new(self.body()?),
        })
    }

    fn body(&mut self) -> Parsed<Node> {
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn simple(&mut self) -> Parsed<Node> {
        let (mut assignments, mut words) = (Vec::new(), Vec::<Word>::new());
        let (mut output, mut errors) = (Output::Log, Errors::Own);
        loop {
            match self.tokens.peek() {
                Some(Token::Word(word)) => match word.assignment().filter(|_| words.is_empty()) {
                    Some(assignment) => assignments.push(assignment),
                    None => words.push(word.clone()),
                },
                Some(Token::Redirect { of_errors, to }) => match (of_errors, to) {
                    (_, Destination::File) => output = Output::File,
                    (false, Destination::Null) => output = Output::Discarded,
                    (false, Destination::Stderr) => output = Output::Errors,
                    (true, Destination::Null) => errors = Errors::Discarded,
                    (true, Destination::Stdout) => errors = Errors::Output,
                    (false, Destination::Stdout) | (true, Destination::Stderr) => {}
                },
                // A function.
                Some(Token::Operator("(")) => return Err(ParseError("(".into())),
                _ => break,
            }
            self.tokens.next();
        }
        if assignments.is_empty() && words.is_empty() {
            return Err(ParseError(format!("{:?}", self.tokens.peek())));
        }
        Ok(Node::Command {
            assignments,
            words,
            output,
            errors,
        })
    }

    /// Takes the next token if it is one of these operators.
    fn operator(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        let is_wanted =
            |token: &Token| matches!(token, Token::Operator(found) if wanted.contains(found));
        match self.tokens.next_if(is_wanted) {
            Some(Token::Operator(found)) => Some(found),
            _ => None,
        }
    }

    /// Takes the next word if it is one of these keywords.
    fn keyword(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        let Some(Token::Word(word)) = self.tokens.peek() else {
            return None;
        };
        let found = wanted
            .iter()
            .copied()
            .find(|keyword| word.keyword() == Some(keyword))?;
        self.tokens.next();
        Some(found)
    }

    fn expect(&mut self, keyword: &'static str) -> Parsed<()> {
        let is_end = self.tokens.peek().is_none();
        let missing = || match is_end {
            true => ParseError(format!("an open command without {keyword}")),
            false => ParseError(format!("a script without {keyword}")),
        };
        self.keyword(&[keyword]).map(|_| ()).ok_or_else(missing)
    }
}
