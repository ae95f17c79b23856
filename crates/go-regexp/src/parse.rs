//! The parser: Go's regular expression syntax becomes a tree, or Go's error.
//!
//! Kubernetes: accepts and rejects what `regexp.Compile` of Go 1.26 does (regexp/syntax/parse.go),
//! in one pass over the text. Two limits are our own: a pattern has at most [`MAX_SIZE`]
//! instructions where Go allows three million, and a non-capturing group with siblings counts as a
//! nesting level.
//!
//! Invariant: the tree is at most [`MAX_HEIGHT`] deep, so functions may recurse over it.

use super::class::{Class, posix_group};
use super::unicode;
use super::{Assertion, ErrorCode, RegexpError};

/// The maximum number of instructions of a pattern, ranges of its classes included.
pub const MAX_SIZE: usize = 100_000;

const MAX_HEIGHT: u32 = 1000;
/// The maximum number of copies that nested counted repetitions may produce.
const MAX_REPEATS: u32 = 1000;

/// A parsed pattern.
pub(super) struct SyntaxTree {
    pub root: PatternNode,
    pub classes: Vec<Class>,
    /// The number of instructions that it compiles to.
    pub size: usize,
}

pub(super) struct PatternNode {
    pub kind: NodeKind,
    /// The number of instructions that it compiles to.
    size: usize,
    height: u32,
    /// The number of copies of its innermost part, by counted repetitions.
    repeats: u32,
    /// Whether it matches the empty string.
    pub nullable: bool,
}

pub(super) enum NodeKind {
    Empty,
    /// A code point, and whether case is ignored.
    Literal(u32, CaseFold),
    /// An index into the classes.
    Class(usize),
    Any,
    AnyExceptNewline,
    Assert(Assertion),
    Concat(Vec<PatternNode>),
    Alternate(Vec<PatternNode>),
    Repeat(Box<PatternNode>, Repeat),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CaseFold {
    Sensitive,
    Insensitive,
}

#[derive(Clone, Copy)]
pub(super) struct Repeat {
    pub min: u32,
    /// `None` means unbounded.
    pub max: Option<u32>,
    pub greedy: bool,
}

pub(super) fn parse(text: &str) -> Result<SyntaxTree, RegexpError> {
    let mut parser = PatternParser {
        text,
        at: 0,
        flags: Flags::default(),
        frames: vec![OpenGroup::new(Flags::default(), false)],
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
    Ok(SyntaxTree {
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

/// An open group, or the whole pattern.
struct OpenGroup {
    /// The flags outside of it.
    flags: Flags,
    captures: bool,
    /// The alternatives before the current one.
    branches: Vec<PatternNode>,
    items: Vec<PatternNode>,
}

struct PatternParser<'a> {
    text: &'a str,
    at: usize,
    flags: Flags,
    frames: Vec<OpenGroup>,
    classes: Vec<Class>,
    /// The number of pushed nodes, which bounds the memory of parsing.
    charged: usize,
    /// The start of the repetition operator that ended right before `at`.
    last_repeat: Option<usize>,
    /// Whether `:]` occurs at or after `at`. Searched once, so that parsing stays linear.
    posix_ends: bool,
}

impl<'a> PatternParser<'a> {
    fn run(&mut self) -> Result<(), RegexpError> {
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
                    frame.branches.push(PatternNode::concat(items));
                    self.charge(1)?;
                }
                '^' if self.flags.multi_line => {
                    self.push(PatternNode::assert(Assertion::BeginLine))?
                }
                '^' => self.push(PatternNode::assert(Assertion::BeginText))?,
                '$' if self.flags.multi_line => {
                    self.push(PatternNode::assert(Assertion::EndLine))?
                }
                '$' => self.push(PatternNode::assert(Assertion::EndText))?,
                '.' if self.flags.dot_newline => self.push(PatternNode::leaf(NodeKind::Any))?,
                '.' => self.push(PatternNode::leaf(NodeKind::AnyExceptNewline))?,
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

    fn frame(&mut self) -> &mut OpenGroup {
        self.frames
            .last_mut()
            .expect("the pattern itself is never closed")
    }

    fn error(&self, code: ErrorCode, shown: &str) -> RegexpError {
        RegexpError {
            code,
            shown: shown.into(),
        }
    }

    /// The error for the text from `start` to here.
    fn error_from(&self, code: ErrorCode, start: usize) -> RegexpError {
        self.error(code, &self.text[start..self.at])
    }

    fn charge(&mut self, size: usize) -> Result<(), RegexpError> {
        self.charged += size;
        match self.charged > MAX_SIZE {
            true => Err(self.error(ErrorCode::Large, self.text)),
            false => Ok(()),
        }
    }

    fn check_limits(&self, node: &PatternNode) -> Result<(), RegexpError> {
        if node.size > MAX_SIZE {
            return Err(self.error(ErrorCode::Large, self.text));
        }
        if node.height > MAX_HEIGHT {
            return Err(self.error(ErrorCode::NestingDepth, self.text));
        }
        Ok(())
    }

    fn push(&mut self, node: PatternNode) -> Result<(), RegexpError> {
        self.charge(1)?;
        self.check_limits(&node)?;
        self.frame().items.push(node);
        Ok(())
    }

    fn literal(&mut self, rune: u32) -> Result<(), RegexpError> {
        let case = if self.flags.fold_case {
            CaseFold::Insensitive
        } else {
            CaseFold::Sensitive
        };
        self.push(PatternNode::leaf(NodeKind::Literal(rune, case)))
    }

    fn push_class(&mut self, class: Class) -> Result<(), RegexpError> {
        self.charge(class.size())?;
        self.classes.push(class);
        self.push(PatternNode::leaf(NodeKind::Class(self.classes.len() - 1)))
    }

    fn open(&mut self, captures: bool) -> Result<(), RegexpError> {
        self.charge(1)?;
        self.frames.push(OpenGroup::new(self.flags, captures));
        Ok(())
    }

    fn close(&mut self) -> Result<(), RegexpError> {
        if self.frames.len() == 1 {
            return Err(self.error(ErrorCode::UnexpectedParen, self.text));
        }
        let frame = self.frames.pop().expect("there are two");
        self.flags = frame.flags;
        self.push(frame.into_node())
    }

    /// Parses what starts with `(?`: a named group, flags, or a group with flags.
    fn group(&mut self, start: usize) -> Result<(), RegexpError> {
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

    /// Parses `{2}`, `{2,}` or `{2,3}`; any other brace is a literal.
    fn count(&mut self, start: usize) -> Result<Option<(u32, Option<u32>)>, RegexpError> {
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

    /// Parses a number without leading zeros; saturates.
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

    /// Repeats the last item. The operator starts at `start` and ends here.
    fn repeat(
        &mut self,
        start: usize,
        min: u32,
        max: Option<u32>,
        counted: bool,
    ) -> Result<(), RegexpError> {
        let greedy = self.take('?') == self.flags.swap_greedy;
        if let Some(last) = self.last_repeat {
            return Err(self.error_from(ErrorCode::InvalidRepeatOp, last));
        }
        let Some(item) = self.frame().items.pop() else {
            return Err(self.error_from(ErrorCode::MissingRepeatArgument, start));
        };
        let node = PatternNode::repeat(item, Repeat { min, max, greedy }, counted);
        if node.repeats > MAX_REPEATS && (min >= 2 || max.is_some_and(|max| max >= 2)) {
            return Err(self.error_from(ErrorCode::InvalidRepeatSize, start));
        }
        self.push(node)
    }

    fn escape(&mut self, start: usize) -> Result<(), RegexpError> {
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
        self.push(PatternNode::assert(assertion))
    }

    /// Adds `\d`, `\pL`, `\p{Greek}` and the like to a class, if the escape is one of them.
    fn group_escape(&mut self, start: usize, class: &mut Class) -> Result<bool, RegexpError> {
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

    /// Parses an escaped character; the backslash at `start` was consumed.
    fn rune_escape(&mut self, start: usize) -> Result<u32, RegexpError> {
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

    /// Parses up to three octal digits, of which the first was consumed.
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

    /// Parses `[...]`; the bracket at `start` was consumed.
    fn class(&mut self, start: usize) -> Result<(), RegexpError> {
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

    fn class_rune(&mut self, class_at: usize) -> Result<u32, RegexpError> {
        let start = self.at;
        match self.next() {
            None => Err(self.error(ErrorCode::MissingBracket, &self.text[class_at..])),
            Some('\\') => self.rune_escape(start),
            Some(char) => Ok(char.into()),
        }
    }

    /// Parses `[:alpha:]` in a class.
    fn posix_class(&mut self, class: &mut Class) -> Result<bool, RegexpError> {
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

impl OpenGroup {
    fn new(flags: Flags, captures: bool) -> OpenGroup {
        OpenGroup {
            flags,
            captures,
            branches: Vec::new(),
            items: Vec::new(),
        }
    }

    fn into_node(mut self) -> PatternNode {
        self.branches.push(PatternNode::concat(self.items));
        let mut node = PatternNode::alternate(self.branches);
        node.height += u32::from(self.captures);
        node
    }
}

impl PatternNode {
    fn leaf(kind: NodeKind) -> PatternNode {
        PatternNode {
            kind,
            size: 1,
            height: 1,
            repeats: 1,
            nullable: false,
        }
    }

    fn assert(assertion: Assertion) -> PatternNode {
        PatternNode {
            nullable: true,
            ..PatternNode::leaf(NodeKind::Assert(assertion))
        }
    }

    fn concat(mut items: Vec<PatternNode>) -> PatternNode {
        match items.len() {
            0 => PatternNode {
                nullable: true,
                size: 0,
                ..PatternNode::leaf(NodeKind::Empty)
            },
            1 => items.remove(0),
            _ => {
                // Kubernetes: Go keeps adjacent characters in one node.
                let is_text = items
                    .iter()
                    .all(|item| matches!(item.kind, NodeKind::Literal(..)));
                let node = PatternNode::around(&items, is_text);
                let nullable = items.iter().all(|item| item.nullable);
                PatternNode {
                    kind: NodeKind::Concat(items),
                    nullable,
                    ..node
                }
            }
        }
    }

    fn alternate(mut branches: Vec<PatternNode>) -> PatternNode {
        if branches.len() == 1 {
            return branches.remove(0);
        }
        // Kubernetes: Go merges single characters into one class.
        let is_char =
            |node: &PatternNode| matches!(node.kind, NodeKind::Literal(..) | NodeKind::Class(_));
        let node = PatternNode::around(&branches, branches.iter().all(is_char));
        let nullable = branches.iter().any(|branch| branch.nullable);
        // Each branch but the last has a split before it and a jump after it.
        let size = node.size + 2 * (branches.len() - 1);
        PatternNode {
            kind: NodeKind::Alternate(branches),
            nullable,
            size,
            ..node
        }
    }

    /// The attributes that a node inherits from its parts.
    fn around(parts: &[PatternNode], flat: bool) -> PatternNode {
        let highest = parts
            .iter()
            .map(|part| part.height)
            .max()
            .unwrap_or_default();
        PatternNode {
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

    fn repeat(item: PatternNode, repeat: Repeat, counted: bool) -> PatternNode {
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
        PatternNode {
            size,
            height: item.height + 1,
            repeats,
            nullable: repeat.min == 0 || item.nullable,
            kind: NodeKind::Repeat(Box::new(item), repeat),
        }
    }
}
