//! Go's syntax of regular expressions: text to tree, or Go's error.
//!
//! Kubernetes: accepts and rejects what `regexp.Compile` of Go 1.26 does (regexp/syntax/parse.go), in one pass over
//! the text. Two limits are our own: a pattern has at most [`MAX_SIZE`] instructions where Go allows three million,
//! and a group that is not captured counts as a level of nesting if there is something beside it.
//!
//! Invariant: the tree is at most [`MAX_HEIGHT`] deep, so functions that walk it may recurse.

use super::class::{Class, posix_group};
use super::unicode;
use super::{Assertion, ErrorCode, ParseError};

/// The most instructions of one pattern, ranges of its character classes included.
pub const MAX_SIZE: usize = 100_000;

const MAX_HEIGHT: u32 = 1000;
/// The most copies of one thing that counted repetitions may ask for, inner ones multiplied.
const MAX_REPEATS: u32 = 1000;

/// A parsed pattern.
pub(super) struct Tree {
    pub root: Node,
    pub classes: Vec<Class>,
    /// What compiling it takes, in instructions.
    pub size: usize,
}

/// A part of a pattern.
pub(super) struct Node {
    pub kind: NodeKind,
    /// How many instructions it becomes.
    size: usize,
    height: u32,
    /// How many copies of its innermost part counted repetitions make.
    repeats: u32,
    /// Whether it matches the empty text.
    pub nullable: bool,
}

pub(super) enum NodeKind {
    Empty,
    /// A code point, and whether case counts.
    Literal(u32, Case),
    /// An index into the classes.
    Class(usize),
    Any,
    AnyExceptNewline,
    Assert(Assertion),
    Concat(Vec<Node>),
    Alternate(Vec<Node>),
    Repeat(Box<Node>, Repeat),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Sensitive,
    Insensitive,
}

#[derive(Clone, Copy)]
pub(super) struct Repeat {
    pub min: u32,
    /// None if there is no upper bound.
    pub max: Option<u32>,
    pub greedy: bool,
}

/// Parses a pattern.
pub(super) fn parse(text: &str) -> Result<Tree, ParseError> {
    let mut parser = Parser {
        text,
        at: 0,
        flags: Flags::default(),
        frames: vec![Frame::new(Flags::default(), false)],
        classes: Vec::new(),
        charged: 0,
        last_repeat: None,
        posix_ends: true,
    };
    parser.run()?;
    let frame = parser.frames.pop().filter(|_| parser.frames.is_empty());
    let root = frame
        .ok_or_else(|| parser.error(ErrorCode::MissingParen, text))?
        .into_node();
    parser.check_limits(&root)?;
    let class_sizes: usize = parser.classes.iter().map(Class::size).sum();
    Ok(Tree {
        size: root.size + class_sizes,
        root,
        classes: parser.classes,
    })
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    swap_greedy: bool,
}

/// A group that is still open, or the whole pattern.
struct Frame {
    /// The flags outside of it.
    flags: Flags,
    captures: bool,
    /// What stands before each `|`.
    branches: Vec<Node>,
    items: Vec<Node>,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    flags: Flags,
    frames: Vec<Frame>,
    classes: Vec<Class>,
    /// What has been pushed so far: bounds what parsing keeps in memory.
    charged: usize,
    /// Where the repetition operator began that ended right before `at`.
    last_repeat: Option<usize>,
    /// Whether `:]` may come at or after `at`. Looked for once, so that parsing stays linear.
    posix_ends: bool,
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), ParseError> {
        while let Some(char) = self.rest().chars().next() {
            let (start, mut repeats) = (self.at, false);
            self.at += char.len_utf8();
            match char {
                '(' if self.rest().starts_with('?') => self.group(start)?,
                '(' => self.open(true)?,
                ')' => self.close()?,
                '|' => {
                    let frame = self.frame();
                    let items = std::mem::take(&mut frame.items);
                    frame.branches.push(Node::concat(items));
                    self.charge(1)?;
                }
                '^' if self.flags.multi_line => self.push(Node::assert(Assertion::BeginLine))?,
                '^' => self.push(Node::assert(Assertion::BeginText))?,
                '$' if self.flags.multi_line => self.push(Node::assert(Assertion::EndLine))?,
                '$' => self.push(Node::assert(Assertion::EndText))?,
                '.' if self.flags.dot_newline => self.push(Node::leaf(NodeKind::Any))?,
                '.' => self.push(Node::leaf(NodeKind::AnyExceptNewline))?,
                '[' => self.class(start)?,
                '*' | '+' | '?' => {
                    let min = u32::from(char == '+');
                    self.repeat(start, min, (char == '?').then_some(1), false)?;
                    repeats = true;
                }
                '{' => match self.count(start)? {
                    Some((min, max)) => {
                        self.repeat(start, min, max, true)?;
                        repeats = true;
                    }
                    None => self.literal('{'.into())?,
                },
                '\\' => self.escape(start)?,
                _ => self.literal(char.into())?,
            }
            self.last_repeat = repeats.then_some(start);
        }
        Ok(())
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, expected: char) -> bool {
        let found = self.rest().starts_with(expected);
        self.at += if found { expected.len_utf8() } else { 0 };
        found
    }

    fn next(&mut self) -> Option<char> {
        let char = self.rest().chars().next()?;
        self.at += char.len_utf8();
        Some(char)
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames
            .last_mut()
            .expect("the pattern itself is never closed")
    }

    fn error(&self, code: ErrorCode, shown: &str) -> ParseError {
        ParseError {
            code,
            shown: shown.into(),
        }
    }

    /// The error about everything from `start` to here.
    fn error_from(&self, code: ErrorCode, start: usize) -> ParseError {
        self.error(code, &self.text[start..self.at])
    }

    fn charge(&mut self, size: usize) -> Result<(), ParseError> {
        self.charged += size;
        match self.charged > MAX_SIZE {
            true => Err(self.error(ErrorCode::Large, self.text)),
            false => Ok(()),
        }
    }

    fn check_limits(&self, node: &Node) -> Result<(), ParseError> {
        if node.size > MAX_SIZE {
            return Err(self.error(ErrorCode::Large, self.text));
        }
        if node.height > MAX_HEIGHT {
            return Err(self.error(ErrorCode::NestingDepth, self.text));
        }
        Ok(())
    }

    fn push(&mut self, node: Node) -> Result<(), ParseError> {
        self.charge(1)?;
        self.check_limits(&node)?;
        self.frame().items.push(node);
        Ok(())
    }

    fn literal(&mut self, rune: u32) -> Result<(), ParseError> {
        let case = if self.flags.fold_case {
            Case::Insensitive
        } else {
            Case::Sensitive
        };
        self.push(Node::leaf(NodeKind::Literal(rune, case)))
    }

    fn push_class(&mut self, class: Class) -> Result<(), ParseError> {
        self.charge(class.size())?;
        self.classes.push(class);
        self.push(Node::leaf(NodeKind::Class(self.classes.len() - 1)))
    }

    fn open(&mut self, captures: bool) -> Result<(), ParseError> {
        self.charge(1)?;
        self.frames.push(Frame::new(self.flags, captures));
        Ok(())
    }

    fn close(&mut self) -> Result<(), ParseError> {
        if self.frames.len() == 1 {
            return Err(self.error(ErrorCode::UnexpectedParen, self.text));
        }
        let frame = self.frames.pop().expect("there are two");
        self.flags = frame.flags;
        self.push(frame.into_node())
    }

    /// What begins with `(?`: a named group, flags, or a group with flags.
    fn group(&mut self, start: usize) -> Result<(), ParseError> {
        let whole = &self.text[start..];
        let name_at = match whole.len() {
            5.. if whole.starts_with("(?P<") => Some(4),
            4.. if whole.starts_with("(?<") => Some(3),
            _ => None,
        };
        if let Some(name_at) = name_at {
            let Some(end) = whole.find('>') else {
                return Err(self.error(ErrorCode::InvalidNamedCapture, whole));
            };
            let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
            let name = &whole[name_at..end];
            if name.is_empty() || !name.bytes().all(is_word) {
                return Err(self.error(ErrorCode::InvalidNamedCapture, &whole[..=end]));
            }
            self.at = start + end + 1;
            return self.open(true);
        }
        self.at = start + 2;
        let (mut flags, mut on, mut said) = (self.flags, true, true);
        while let Some(char) = self.next() {
            match char {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.swap_greedy = on,
                '-' if on => on = false,
                ':' | ')' if said => {
                    if char == ':' {
                        self.open(false)?;
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => break,
            }
            // A minus sign must be followed by a flag.
            said = char != '-';
        }
        Err(self.error_from(ErrorCode::InvalidPerlOp, start))
    }

    /// `{2}`, `{2,}` or `{2,3}`; anything else after a brace means that the brace is a literal.
    fn count(&mut self, start: usize) -> Result<Option<(u32, Option<u32>)>, ParseError> {
        let Some((min, max)) = self.bounds() else {
            self.at = start + 1;
            return Ok(None);
        };
        let least = max.unwrap_or(min);
        if min > MAX_REPEATS || least > MAX_REPEATS || min > least {
            return Err(self.error_from(ErrorCode::InvalidRepeatSize, start));
        }
        Ok(Some((min, max)))
    }

    fn bounds(&mut self) -> Option<(u32, Option<u32>)> {
        let min = self.number()?;
        let max = match self.take(',') {
            false => Some(min),
            true if self.rest().starts_with('}') => None,
            true => Some(self.number()?),
        };
        self.take('}').then_some((min, max))
    }

    /// A number without leading zeros; a very large one if it does not fit.
    fn number(&mut self) -> Option<u32> {
        let rest = self.rest();
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let digits = &rest[..length];
        if digits.is_empty() || (length > 1 && digits.starts_with('0')) {
            return None;
        }
        self.at += length;
        Some(digits.parse().unwrap_or(u32::MAX))
    }

    /// Repeats the last item. The operator begins at `start` and ends here.
    fn repeat(
        &mut self,
        start: usize,
        min: u32,
        max: Option<u32>,
        counted: bool,
    ) -> Result<(), ParseError> {
        let greedy = self.take('?') == self.flags.swap_greedy;
        if let Some(last) = self.last_repeat {
            return Err(self.error_from(ErrorCode::InvalidRepeatOp, last));
        }
        let Some(item) = self.frame().items.pop() else {
            return Err(self.error_from(ErrorCode::MissingRepeatArgument, start));
        };
        let node = Node::repeat(item, Repeat { min, max, greedy }, counted);
        if node.repeats > MAX_REPEATS && (min >= 2 || max.is_some_and(|max| max >= 2)) {
            return Err(self.error_from(ErrorCode::InvalidRepeatSize, start));
        }
        self.push(node)
    }

    fn escape(&mut self, start: usize) -> Result<(), ParseError> {
        let assertion = match self.rest().chars().next() {
            Some('A') => Assertion::BeginText,
            Some('z') => Assertion::EndText,
            Some('b') => Assertion::WordBoundary,
            Some('B') => Assertion::NoWordBoundary,
            Some('C') => {
                self.at += 1;
                return Err(self.error_from(ErrorCode::InvalidEscape, start));
            }
            Some('Q') => {
                let rest = &self.rest()[1..];
                let (quoted, after) = rest.split_once("\\E").unwrap_or((rest, ""));
                self.at = self.text.len() - after.len();
                return quoted
                    .chars()
                    .try_for_each(|char| self.literal(char.into()));
            }
            _ => {
                let mut class = Class::new(self.flags.fold_case);
                if self.group_escape(start, &mut class)? {
                    return self.push_class(class.finish());
                }
                let rune = self.rune_escape(start)?;
                return self.literal(rune);
            }
        };
        self.at += 1;
        self.push(Node::assert(assertion))
    }

    /// `\d`, `\pL`, `\p{Greek}` and the like: adds a group of characters to a class, if the escape is one.
    fn group_escape(&mut self, start: usize, class: &mut Class) -> Result<bool, ParseError> {
        match self.rest().chars().next() {
            Some(letter @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                self.at += 1;
                class.add_perl_group(letter);
                Ok(true)
            }
            Some(letter @ ('p' | 'P')) => {
                self.at += 1;
                let name = match self.next() {
                    Some('{') => {
                        let from = self.at;
                        let Some(length) = self.rest().find('}') else {
                            self.at = self.text.len();
                            return Err(self.error_from(ErrorCode::InvalidCharRange, start));
                        };
                        self.at += length + 1;
                        &self.text[from..from + length]
                    }
                    Some(_) => &self.text[start + 2..self.at],
                    None => "",
                };
                let (name, inverted) = name
                    .strip_prefix('^')
                    .map_or((name, false), |name| (name, true));
                let Some(table) = unicode::table(name) else {
                    return Err(self.error_from(ErrorCode::InvalidCharRange, start));
                };
                class.add_table(table.ranges, (letter == 'P') ^ inverted ^ table.inverted);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// One character that is written as an escape; the backslash at `start` has been read.
    fn rune_escape(&mut self, start: usize) -> Result<u32, ParseError> {
        let Some(char) = self.next() else {
            return Err(self.error(ErrorCode::TrailingBackslash, ""));
        };
        let is_octal = |parser: &Self| parser.rest().starts_with(|char| matches!(char, '0'..='7'));
        let rune = match char {
            '0' => Some(self.octal(char)),
            '1'..='7' if is_octal(self) => Some(self.octal(char)),
            'x' => self.hexadecimal(),
            'a' => Some(0x07),
            'f' => Some(0x0C),
            'n' => Some(0x0A),
            'r' => Some(0x0D),
            't' => Some(0x09),
            'v' => Some(0x0B),
            char if char.is_ascii() && !char.is_ascii_alphanumeric() => Some(char.into()),
            _ => None,
        };
        rune.ok_or_else(|| self.error_from(ErrorCode::InvalidEscape, start))
    }

    /// Up to three digits, of which the first has been read.
    fn octal(&mut self, first: char) -> u32 {
        let mut rune = first.to_digit(8).unwrap_or_default();
        for _ in 1..3 {
            let Some(digit) = self.rest().chars().next().and_then(|char| char.to_digit(8)) else {
                break;
            };
            rune = rune * 8 + digit;
            self.at += 1;
        }
        rune
    }

    /// `41` or `{10FFFF}`.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.next()?;
        if first != '{' {
            let second = self.next();
            return Some(first.to_digit(16)? * 16 + second?.to_digit(16)?);
        }
        let (mut rune, from) = (0, self.at);
        loop {
            match self.next()? {
                '}' => return (self.at > from + 1).then_some(rune),
                char => rune = rune * 16 + char.to_digit(16)?,
            }
            if rune > u32::from(char::MAX) {
                return None;
            }
        }
    }

    /// `[...]`; the bracket at `start` has been read.
    fn class(&mut self, start: usize) -> Result<(), ParseError> {
        let mut class = Class::new(self.flags.fold_case);
        class.negated = self.take('^');
        let mut first = true;
        while first || !self.rest().starts_with(']') {
            first = false;
            let from = self.at;
            if self.posix_class(&mut class)? {
                continue;
            }
            if self.take('\\') {
                if self.group_escape(from, &mut class)? {
                    continue;
                }
                self.at = from;
            }
            let low = self.class_rune(start)?;
            let mut high = low;
            let mut after = self.rest().chars();
            if after.next() == Some('-') && after.next().is_some_and(|char| char != ']') {
                self.at += 1;
                high = self.class_rune(start)?;
                if high < low {
                    return Err(self.error_from(ErrorCode::InvalidCharRange, from));
                }
            }
            self.charge(1)?;
            class.add_range(low, high);
        }
        self.at += 1;
        self.push_class(class.finish())
    }

    fn class_rune(&mut self, class_at: usize) -> Result<u32, ParseError> {
        let start = self.at;
        match self.next() {
            None => Err(self.error(ErrorCode::MissingBracket, &self.text[class_at..])),
            Some('\\') => self.rune_escape(start),
            Some(char) => Ok(char.into()),
        }
    }

    /// `[:alpha:]` inside of a class.
    fn posix_class(&mut self, class: &mut Class) -> Result<bool, ParseError> {
        let rest = self.rest();
        if !self.posix_ends || !rest.starts_with("[:") || rest.len() < 3 {
            return Ok(false);
        }
        let Some(length) = rest[2..].find(":]") else {
            self.posix_ends = false;
            return Ok(false);
        };
        let name = &rest[2..2 + length];
        let (name, negated) = name
            .strip_prefix('^')
            .map_or((name, false), |name| (name, true));
        let Some(ranges) = posix_group(name) else {
            return Err(self.error(ErrorCode::InvalidCharRange, &rest[..length + 4]));
        };
        self.at += length + 4;
        class.add_table(ranges, negated);
        Ok(true)
    }
}

impl Frame {
    fn new(flags: Flags, captures: bool) -> Frame {
        Frame {
            flags,
            captures,
            branches: Vec::new(),
            items: Vec::new(),
        }
    }

    fn into_node(mut self) -> Node {
        self.branches.push(Node::concat(self.items));
        let mut node = Node::alternate(self.branches);
        node.height += u32::from(self.captures);
        node
    }
}

impl Node {
    fn leaf(kind: NodeKind) -> Node {
        Node {
            kind,
            size: 1,
            height: 1,
            repeats: 1,
            nullable: false,
        }
    }

    fn assert(assertion: Assertion) -> Node {
        Node {
            nullable: true,
            ..Node::leaf(NodeKind::Assert(assertion))
        }
    }

    fn concat(mut items: Vec<Node>) -> Node {
        match items.len() {
            0 => Node {
                nullable: true,
                size: 0,
                ..Node::leaf(NodeKind::Empty)
            },
            1 => items.remove(0),
            _ => {
                // Kubernetes: Go keeps adjacent characters in one node.
                let is_text = items
                    .iter()
                    .all(|item| matches!(item.kind, NodeKind::Literal(..)));
                let node = Node::around(&items, is_text);
                let nullable = items.iter().all(|item| item.nullable);
                Node {
                    kind: NodeKind::Concat(items),
                    nullable,
                    ..node
                }
            }
        }
    }

    fn alternate(mut branches: Vec<Node>) -> Node {
        if branches.len() == 1 {
            return branches.remove(0);
        }
        // Kubernetes: Go makes one class of single characters.
        let is_char = |node: &Node| matches!(node.kind, NodeKind::Literal(..) | NodeKind::Class(_));
        let node = Node::around(&branches, branches.iter().all(is_char));
        let nullable = branches.iter().any(|branch| branch.nullable);
        // Each branch but the last has a split before it and a jump after it.
        let size = node.size + 2 * (branches.len() - 1);
        Node {
            kind: NodeKind::Alternate(branches),
            nullable,
            size,
            ..node
        }
    }

    /// What a node inherits from its parts.
    fn around(parts: &[Node], flat: bool) -> Node {
        let highest = parts
            .iter()
            .map(|part| part.height)
            .max()
            .unwrap_or_default();
        Node {
            kind: NodeKind::Empty,
            size: parts
                .iter()
                .map(|part| part.size)
                .fold(0, usize::saturating_add),
            height: highest + u32::from(!flat),
            repeats: parts.iter().map(|part| part.repeats).max().unwrap_or(1),
            nullable: false,
        }
    }

    fn repeat(item: Node, repeat: Repeat, counted: bool) -> Node {
        let (min, inner) = (repeat.min as usize, item.size);
        let size = match repeat.max.map(|max| max as usize) {
            None => 2 + min.max(1).saturating_mul(inner),
            Some(max) => max.saturating_mul(inner) + (max - min),
        };
        let copies = repeat.max.unwrap_or(repeat.min);
        let repeats = match copies {
            0 if repeat.max.is_some() => 1,
            copies if counted => copies.max(1).saturating_mul(item.repeats),
            _ => item.repeats,
        };
        Node {
            size,
            height: item.height + 1,
            repeats,
            nullable: repeat.min == 0 || item.nullable,
            kind: NodeKind::Repeat(Box::new(item), repeat),
        }
    }
}
