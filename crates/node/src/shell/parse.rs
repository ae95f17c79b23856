//! The parser: the part of the POSIX shell grammar that needs no other process.

use std::iter::Peekable;
use std::vec::IntoIter;

/// The deepest nesting.
const MAX_DEPTH: usize = 50;

/// A parsed script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShellScript {
    pub(super) body: ScriptNode,
    /// `$0`, `$1` and so on.
    pub(super) parameters: Vec<String>,
    /// `-e`: the first command that fails ends the script.
    pub(super) exits_on_error: bool,
}

/// A node of the syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScriptNode {
    /// Assignments and words, with redirections.
    Command {
        assignments: Vec<(String, Word)>,
        words: Vec<Word>,
        output: OutputTarget,
        errors: ErrorTarget,
    },
    /// One after the other.
    Sequence(Vec<ScriptNode>),
    /// `a && b`
    And(Box<ScriptNode>, Box<ScriptNode>),
    /// `a || b`
    Or(Box<ScriptNode>, Box<ScriptNode>),
    /// `! a`
    Not(Box<ScriptNode>),
    /// Conditions with their bodies, and the `else` branch.
    If(Vec<(ScriptNode, ScriptNode)>, Option<Box<ScriptNode>>),
    /// `while`, or `until`.
    Loop {
        until: bool,
        condition: Box<ScriptNode>,
        body: Box<ScriptNode>,
    },
    /// `for name in words`
    For {
        name: String,
        words: Vec<Word>,
        body: Box<ScriptNode>,
    },
    /// `( … )`: variables and `exit` stay inside.
    Subshell(Box<ScriptNode>),
}

/// Where a command's output goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OutputTarget {
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
pub(super) enum ErrorTarget {
    /// To stderr.
    #[default]
    Own,
    /// To where the output goes.
    Output,
    /// To `/dev/null`.
    Discarded,
}

/// A word before expansion.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Word(pub Vec<WordPart>);

/// A part of a word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WordPart {
    Text {
        text: String,
        quoted: bool,
    },
    /// `$name`, or `${name:-word}` and its like.
    Variable {
        name: String,
        operator: ParameterOperator,
        word: Word,
        quoted: bool,
    },
    /// `$(…)`
    Command {
        body: ScriptNode,
        quoted: bool,
    },
    /// `$((…))`
    Arithmetic(Word),
}

/// The operator of a parameter expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterOperator {
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

/// A script outside the grammar.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not understood")]
pub(super) struct ShellSyntaxError(String);

impl ShellSyntaxError {
    /// Whether more text might complete the script.
    pub(super) fn is_incomplete(&self) -> bool {
        self.0 == "None" || self.0.starts_with("an open ")
    }
}

type Parsed<T> = Result<T, ShellSyntaxError>;

impl ShellScript {
    /// A single command with literal words.
    pub(super) fn of_words(words: &[String]) -> ShellScript {
        let word = |text: &String| {
            Word(vec![WordPart::Text {
                text: text.clone(),
                quoted: true,
            }])
        };
        let body = ScriptNode::Command {
            assignments: vec![],
            words: words.iter().map(word).collect(),
            output: OutputTarget::Log,
            errors: ErrorTarget::Own,
        };
        ShellScript {
            body,
            parameters: vec![],
            exits_on_error: false,
        }
    }

    /// Parses the text of `sh -c`; `parameters` are `$0` and following.
    pub(super) fn parse(text: &str, parameters: &[String]) -> Parsed<ShellScript> {
        let tokens = Lexer {
            rest: text.chars().collect::<Vec<_>>().into_iter().peekable(),
            depth: 0,
        }
        .tokens(None)?;
        let mut parser = ShellParser {
            tokens: tokens.into_iter().peekable(),
            depth: 0,
        };
        let body = parser.list(&[])?;
        match parser.tokens.next() {
            None => Ok(ShellScript {
                body,
                parameters: parameters.to_vec(),
                exits_on_error: false,
            }),
            Some(token) => Err(ShellSyntaxError(format!("{token:?}"))),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum ShellToken {
    Word(Word),
    /// `;`, `&&`, `||`, `(`, `)`, `;;`, and `\n`.
    Operator(&'static str),
    Redirect {
        of_errors: bool,
        to: Destination,
    },
}

/// The target of a redirection.
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
    fn tokens(&mut self, end: Option<char>) -> Parsed<Vec<ShellToken>> {
        if self.depth > MAX_DEPTH {
            return Err(ShellSyntaxError("a script that nests so deeply".into()));
        }
        let (mut tokens, mut open) = (Vec::new(), 0);
        loop {
            let Some(&next) = self.rest.peek() else {
                return if end.is_none() {
                    Ok(tokens)
                } else {
                    Err(ShellSyntaxError("an open $(".into()))
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
                    tokens.push(ShellToken::Operator(operator));
                }
                '<' => return Err(ShellSyntaxError("an input redirection".into())),
                '>' => tokens.push(self.redirect(false)?),
                '1' | '2' if self.is_redirect() => {
                    let of_errors = self.rest.next() == Some('2');
                    tokens.push(self.redirect(of_errors)?);
                }
                _ => tokens.push(ShellToken::Word(self.word()?)),
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
            ';' if doubled() => Err(ShellSyntaxError("case".into())),
            ';' => Ok(";"),
            '&' if doubled() => Ok("&&"),
            '&' => Err(ShellSyntaxError("a background job".into())),
            _ if doubled() => Ok("||"),
            _ => Err(ShellSyntaxError("a pipe".into())),
        }
    }

    /// Whether a digit is the descriptor of a redirection.
    fn is_redirect(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next();
        ahead.next() == Some('>')
    }

    fn redirect(&mut self, of_errors: bool) -> Parsed<ShellToken> {
        self.rest.next();
        self.rest.next_if_eq(&'>');
        if self.rest.next_if_eq(&'&').is_some() {
            let to = match self.rest.next_if(|c| "12".contains(*c)) {
                Some('1') => Destination::Stdout,
                Some(_) => Destination::Stderr,
                None => return Err(ShellSyntaxError(">&".into())),
            };
            return Ok(ShellToken::Redirect { of_errors, to });
        }
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        let target = self.word()?;
        let to = match target.0.as_slice() {
            [WordPart::Text { text, .. }] => match text.as_str() {
                "/dev/null" => Destination::Null,
                "/dev/stdout" | "/proc/1/fd/1" | "/proc/self/fd/1" => Destination::Stdout,
                "/dev/stderr" => Destination::Stderr,
                _ => Destination::File,
            },
            _ => Destination::File,
        };
        Ok(ShellToken::Redirect { of_errors, to })
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
                '`' => return Err(ShellSyntaxError("`".into())),
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
                None => return Err(ShellSyntaxError(format!("an open {end}"))),
            }
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Parsed<()> {
        word.push("", true);
        loop {
            match self.rest.peek() {
                None => return Err(ShellSyntaxError("an open \"".into())),
                Some('"') => {
                    self.rest.next();
                    return Ok(());
                }
                Some('`') => return Err(ShellSyntaxError("`".into())),
                Some('$') => self.dollar(word, true)?,
                Some('\\') => {
                    self.rest.next();
                    match self.rest.next() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => word.push(&c.to_string(), true),
                        Some(c) => word.push(&format!("\\{c}"), true),
                        None => return Err(ShellSyntaxError("an open \"".into())),
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
                WordPart::Variable {
                    name,
                    operator: ParameterOperator::Plain,
                    word: Word::default(),
                    quoted,
                }
            }
            Some(c @ ('?' | '#' | '$' | '@' | '*' | '0'..='9')) => {
                self.rest.next();
                WordPart::Variable {
                    name: c.to_string(),
                    operator: ParameterOperator::Plain,
                    word: Word::default(),
                    quoted,
                }
            }
            _ => WordPart::Text {
                text: "$".into(),
                quoted: true,
            },
        };
        word.0.push(part);
        Ok(())
    }

    fn substitution(&mut self, quoted: bool) -> Parsed<WordPart> {
        self.depth += 1;
        let tokens = self.tokens(Some(')'))?;
        self.depth -= 1;
        let mut parser = ShellParser {
            tokens: tokens.into_iter().peekable(),
            depth: self.depth,
        };
        let body = parser.list(&[])?;
        match parser.tokens.next() {
            None => Ok(WordPart::Command { body, quoted }),
            Some(token) => Err(ShellSyntaxError(format!("{token:?}"))),
        }
    }

    fn arithmetic(&mut self) -> Parsed<WordPart> {
        let (mut word, mut open) = (Word::default(), 0);
        loop {
            match self.rest.peek().copied() {
                None => return Err(ShellSyntaxError("an open $((".into())),
                Some(')') if open == 0 => {
                    self.rest.next();
                    return match self.rest.next() {
                        Some(')') => Ok(WordPart::Arithmetic(word)),
                        _ => Err(ShellSyntaxError("an open $((".into())),
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

    fn braced(&mut self, quoted: bool) -> Parsed<WordPart> {
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
            Some('}') if is_length && !also_empty => ParameterOperator::Length,
            Some('}') if !also_empty => ParameterOperator::Plain,
            Some('-') => ParameterOperator::Default { also_empty },
            Some('+') => ParameterOperator::Alternative { also_empty },
            other => {
                return Err(ShellSyntaxError(format!(
                    "${{{name}{}",
                    other.unwrap_or_default()
                )));
            }
        };
        let mut word = Word::default();
        if matches!(
            operator,
            ParameterOperator::Default { .. } | ParameterOperator::Alternative { .. }
        ) {
            loop {
                match self.rest.peek().copied() {
                    None => return Err(ShellSyntaxError("an open ${".into())),
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
            return Err(ShellSyntaxError("${}".into()));
        }
        Ok(WordPart::Variable {
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
            Some(WordPart::Text { text, quoted }) if *quoted == is_quoted => text.push_str(more),
            _ => self.0.push(WordPart::Text {
                text: more.into(),
                quoted: is_quoted,
            }),
        }
    }

    /// Its text if nothing in it is quoted or expanded, so that it can be a keyword.
    fn keyword(&self) -> Option<&str> {
        match self.0.as_slice() {
            [
                WordPart::Text {
                    text,
                    quoted: false,
                },
            ] => Some(text),
            _ => None,
        }
    }

    /// Splits `name=value`.
    fn assignment(&self) -> Option<(String, Word)> {
        let Some(WordPart::Text {
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
        let first = WordPart::Text {
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

struct ShellParser {
    tokens: Peekable<IntoIter<ShellToken>>,
    depth: usize,
}

impl ShellParser {
    /// Commands up to one of the keywords, which is not consumed, or to the end.
    fn list(&mut self, ends: &[&str]) -> Parsed<ScriptNode> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ShellSyntaxError("a script that nests so deeply".into()));
        }
        let mut nodes = Vec::new();
        loop {
            while self.operator(&[";", "\n"]).is_some() {}
            let is_end = match self.tokens.peek() {
                None | Some(ShellToken::Operator(")")) => true,
                Some(ShellToken::Word(word)) => {
                    word.keyword().is_some_and(|word| ends.contains(&word))
                }
                Some(_) => false,
            };
            if is_end {
                self.depth -= 1;
                return Ok(ScriptNode::Sequence(nodes));
            }
            nodes.push(self.and_or()?);
            if !matches!(
                self.tokens.peek(),
                None | Some(ShellToken::Operator(";" | "\n" | ")"))
            ) {
                return Err(ShellSyntaxError(format!("{:?}", self.tokens.peek())));
            }
        }
    }

    fn and_or(&mut self) -> Parsed<ScriptNode> {
        let mut node = self.negated()?;
        while let Some(operator) = self.operator(&["&&", "||"]) {
            while self.operator(&["\n"]).is_some() {}
            let (left, right) = (Box::new(node), Box::new(self.negated()?));
            node = if operator == "&&" {
                ScriptNode::And(left, right)
            } else {
                ScriptNode::Or(left, right)
            };
        }
        Ok(node)
    }

    fn negated(&mut self) -> Parsed<ScriptNode> {
        if self.keyword(&["!"]).is_some() {
            return Ok(ScriptNode::Not(Box::new(self.negated()?)));
        }
        self.command()
    }

    fn command(&mut self) -> Parsed<ScriptNode> {
        if self.operator(&["("]).is_some() {
            let body = self.list(&[])?;
            return match self.operator(&[")"]) {
                Some(_) => Ok(ScriptNode::Subshell(Box::new(body))),
                None => Err(ShellSyntaxError("an open (".into())),
            };
        }
        match self.keyword(&["if", "while", "until", "for", "{", "case", "function"]) {
            Some("if") => self.conditional(),
            Some("while") => self.parse_loop(false),
            Some("until") => self.parse_loop(true),
            Some("for") => self.parse_for(),
            Some("{") => {
                let body = self.list(&["}"])?;
                self.expect("}")?;
                Ok(body)
            }
            Some(other) => Err(ShellSyntaxError(other.into())),
            None => self.simple(),
        }
    }

    fn conditional(&mut self) -> Parsed<ScriptNode> {
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
                    return Ok(ScriptNode::If(branches, Some(Box::new(otherwise))));
                }
                Some(_) => return Ok(ScriptNode::If(branches, None)),
                None => return Err(ShellSyntaxError("an open if".into())),
            }
        }
    }

    fn parse_loop(&mut self, until: bool) -> Parsed<ScriptNode> {
        let condition = Box::new(self.list(&["do"])?);
        Ok(ScriptNode::Loop {
            until,
            condition,
            body: Box::new(self.body()?),
        })
    }

    fn parse_for(&mut self) -> Parsed<ScriptNode> {
        let name = match self.tokens.next() {
            Some(ShellToken::Word(word)) => word.keyword().map(String::from),
            _ => None,
        };
        let name = name.ok_or_else(|| ShellSyntaxError("for".into()))?;
        self.expect("in")?;
        let mut words = Vec::new();
        while let Some(ShellToken::Word(_)) = self.tokens.peek() {
            if let Some(ShellToken::Word(word)) = self.tokens.next() {
                words.push(word);
            }
        }
        while self.operator(&[";", "\n"]).is_some() {}
        Ok(ScriptNode::For {
            name,
            words,
            body: Box::new(self.body()?),
        })
    }

    fn body(&mut self) -> Parsed<ScriptNode> {
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(body)
    }

    fn simple(&mut self) -> Parsed<ScriptNode> {
        let (mut assignments, mut words) = (Vec::new(), Vec::<Word>::new());
        let (mut output, mut errors) = (OutputTarget::Log, ErrorTarget::Own);
        loop {
            match self.tokens.peek() {
                Some(ShellToken::Word(word)) => {
                    match word.assignment().filter(|_| words.is_empty()) {
                        Some(assignment) => assignments.push(assignment),
                        None => words.push(word.clone()),
                    }
                }
                Some(ShellToken::Redirect { of_errors, to }) => match (of_errors, to) {
                    (_, Destination::File) => output = OutputTarget::File,
                    (false, Destination::Null) => output = OutputTarget::Discarded,
                    (false, Destination::Stderr) => output = OutputTarget::Errors,
                    (true, Destination::Null) => errors = ErrorTarget::Discarded,
                    (true, Destination::Stdout) => errors = ErrorTarget::Output,
                    (false, Destination::Stdout) | (true, Destination::Stderr) => {}
                },
                // A function definition.
                Some(ShellToken::Operator("(")) => return Err(ShellSyntaxError("(".into())),
                _ => break,
            }
            self.tokens.next();
        }
        if assignments.is_empty() && words.is_empty() {
            return Err(ShellSyntaxError(format!("{:?}", self.tokens.peek())));
        }
        Ok(ScriptNode::Command {
            assignments,
            words,
            output,
            errors,
        })
    }

    /// Consumes the next token if it is one of these operators.
    fn operator(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        let is_wanted = |token: &ShellToken| matches!(token, ShellToken::Operator(found) if wanted.contains(found));
        match self.tokens.next_if(is_wanted) {
            Some(ShellToken::Operator(found)) => Some(found),
            _ => None,
        }
    }

    /// Consumes the next word if it is one of these keywords.
    fn keyword(&mut self, wanted: &[&'static str]) -> Option<&'static str> {
        let Some(ShellToken::Word(word)) = self.tokens.peek() else {
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
            true => ShellSyntaxError(format!("an open command without {keyword}")),
            false => ShellSyntaxError(format!("a script without {keyword}")),
        };
        self.keyword(&[keyword]).map(|_| ()).ok_or_else(missing)
    }
}
