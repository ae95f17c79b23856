//! The scanner: characters become tokens.
//!
//! Two features make the tokens of YAML depend on each other. Indentation opens and closes blocks,
//! which adds tokens without characters. And a word is a key only if a colon follows, so the
//! position of each possible key is saved and the key token is inserted there afterwards.

use std::collections::{HashMap, VecDeque};

use super::cursor::{Cursor, TextPosition, is_blank, is_blank_or_end, is_break};
use super::{Result, YamlError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum YamlToken {
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    /// `%YAML 1.1`
    Version(u8, u8),
    /// `%TAG handle prefix`
    TagDirective(String, String),
    BlockListStart,
    BlockMapStart,
    BlockEnd,
    FlowListStart,
    FlowListEnd,
    FlowMapStart,
    FlowMapEnd,
    /// `-`
    BlockEntry,
    /// `,`
    FlowEntry,
    Key,
    Value,
    Alias(String),
    Anchor(String),
    /// A handle and a suffix.
    Tag(String, String),
    /// The text of a scalar, and whether it is plain.
    Scalar(String, bool),
}

/// A token with its start and end.
#[derive(Debug, Clone)]
pub(super) struct PlacedToken {
    pub(super) token: YamlToken,
    pub(super) start: TextPosition,
    pub(super) end: TextPosition,
}

pub(super) struct YamlScanner {
    pub(super) cursor: Cursor,
    tokens: VecDeque<PlacedToken>,
    /// The number of consumed tokens.
    n_taken: usize,
    pub(super) flow_level: usize,
    /// The column of the innermost block, -1 outside of all blocks.
    pub(super) indent: isize,
    indents: Vec<isize>,
    /// Whether a key or a block may start here.
    pub(super) key_allowed: bool,
    /// The possible key of each flow level.
    keys: Vec<PossibleKey>,
    /// The index into `keys` of the key that starts at a token.
    keys_by_token: HashMap<usize, usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PossibleKey {
    is_possible: bool,
    /// Whether it must be a key: nothing else can start a line of a block map.
    is_required: bool,
    token: usize,
    mark: TextPosition,
}

/// A key ends on the line where it starts, within this many characters.
const MAX_KEY: usize = 1024;

impl YamlScanner {
    pub(super) fn new(text: &[u8]) -> Result<YamlScanner> {
        Ok(YamlScanner {
            cursor: Cursor::new(text)?,
            tokens: VecDeque::new(),
            n_taken: 0,
            flow_level: 0,
            indent: -1,
            indents: Vec::new(),
            key_allowed: true,
            keys: vec![PossibleKey::default()],
            keys_by_token: HashMap::new(),
        })
    }

    /// The next token, which is not consumed.
    pub(super) fn peek(&mut self) -> Result<&PlacedToken> {
        while self.needs_more()? {
            self.fetch()?;
        }
        Ok(&self.tokens[0])
    }

    /// Consumes the next token.
    pub(super) fn take(&mut self) -> Result<PlacedToken> {
        let end = PlacedToken {
            token: YamlToken::StreamEnd,
            ..*self.peek()?
        };
        // The end of the stream is never consumed.
        if self.tokens[0].token == YamlToken::StreamEnd {
            return Ok(end);
        }
        self.n_taken += 1;
        Ok(self.tokens.pop_front().unwrap_or(end))
    }

    /// Whether a token may still be inserted before the first one.
    fn needs_more(&mut self) -> Result<bool> {
        if self.tokens.is_empty() {
            return Ok(true);
        }
        match self.keys_by_token.get(&self.n_taken) {
            Some(key) => self.is_valid(*key),
            None => Ok(false),
        }
    }

    fn fetch(&mut self) -> Result<()> {
        self.skip_to_token();
        self.unroll(self.cursor.mark.column as isize);
        let (char, next) = (self.cursor.char(), self.cursor.ahead(1));
        match char {
            '\0' => self.stream_end(),
            '%' if self.cursor.mark.column == 0 => self.directive(),
            '-' | '.' if self.cursor.at_document_indicator() => self.document_indicator(char),
            '[' => self.flow_start(YamlToken::FlowListStart),
            '{' => self.flow_start(YamlToken::FlowMapStart),
            ']' => self.flow_end(YamlToken::FlowListEnd),
            '}' => self.flow_end(YamlToken::FlowMapEnd),
            ',' => self.flow_entry(),
            '-' if is_blank_or_end(next) => self.block_entry(),
            '?' if self.flow_level > 0 || is_blank_or_end(next) => self.key(),
            ':' if self.flow_level > 0 || is_blank_or_end(next) => self.value(),
            '*' | '&' => self.word(YamlScanner::scan_anchor),
            '!' => self.word(YamlScanner::scan_tag),
            '|' | '>' if self.flow_level == 0 => self.block_scalar(),
            '\'' | '"' => self.word(YamlScanner::scan_quoted),
            _ if self.starts_plain(char, next) => self.word(YamlScanner::scan_plain),
            _ => Err(self.refuse(
                self.cursor.mark,
                "found character that cannot start any token",
            )),
        }
    }

    fn starts_plain(&self, char: char, next: char) -> bool {
        match char {
            '-' => !is_blank(next),
            '?' | ':' => self.flow_level == 0 && !is_blank_or_end(next),
            _ => !is_blank_or_end(char) && !"#&*!|>%@`".contains(char),
        }
    }

    /// A tab is white space only where no block can start.
    fn skip_to_token(&mut self) {
        loop {
            let tabs_allowed = self.flow_level > 0 || !self.key_allowed;
            while self.cursor.char() == ' ' || tabs_allowed && self.cursor.char() == '\t' {
                self.cursor.skip(1);
            }
            self.cursor.skip_comment();
            if !is_break(self.cursor.char()) {
                return;
            }
            self.cursor.skip_break();
            self.key_allowed |= self.flow_level == 0;
        }
    }

    fn stream_end(&mut self) -> Result<()> {
        let mark = &mut self.cursor.mark;
        if mark.column != 0 {
            (mark.column, mark.line) = (0, mark.line + 1);
        }
        self.leave_blocks()?;
        self.push(YamlToken::StreamEnd, self.cursor.mark);
        Ok(())
    }

    /// Closes all blocks, before a token outside of documents.
    fn leave_blocks(&mut self) -> Result<()> {
        self.unroll(-1);
        self.drop_key()?;
        self.key_allowed = false;
        Ok(())
    }

    fn directive(&mut self) -> Result<()> {
        self.leave_blocks()?;
        let start = self.cursor.mark;
        let token = self.scan_directive()?;
        self.push(token, start);
        Ok(())
    }

    fn document_indicator(&mut self, char: char) -> Result<()> {
        self.leave_blocks()?;
        self.symbol(
            if char == '-' {
                YamlToken::DocumentStart
            } else {
                YamlToken::DocumentEnd
            },
            3,
        );
        Ok(())
    }

    fn flow_start(&mut self, token: YamlToken) -> Result<()> {
        self.save_key()?;
        let key = PossibleKey {
            token: self.next_number(),
            mark: self.cursor.mark,
            ..PossibleKey::default()
        };
        self.keys.push(key);
        self.flow_level += 1;
        self.key_allowed = true;
        self.symbol(token, 1);
        Ok(())
    }

    fn flow_end(&mut self, token: YamlToken) -> Result<()> {
        self.drop_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            // Kubernetes: a flow collection without a key in it removes the possible key that it is
            // itself, so `[]: x` has no key (scannerc.go, yaml_parser_decrease_flow_level).
            if let Some(key) = self.keys.pop() {
                self.keys_by_token.remove(&key.token);
            }
        }
        self.key_allowed = false;
        self.symbol(token, 1);
        Ok(())
    }

    fn flow_entry(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        self.symbol(YamlToken::FlowEntry, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<()> {
        self.open_block(
            YamlToken::BlockListStart,
            "block sequence entries are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = true;
        self.symbol(YamlToken::BlockEntry, 1);
        Ok(())
    }

    fn key(&mut self) -> Result<()> {
        self.open_block(
            YamlToken::BlockMapStart,
            "mapping keys are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = self.flow_level == 0;
        self.symbol(YamlToken::Key, 1);
        Ok(())
    }

    fn value(&mut self) -> Result<()> {
        let last = self.keys.len() - 1;
        if self.is_valid(last)? {
            let key = self.keys[last];
            self.insert(key.token, YamlToken::Key, key.mark);
            self.roll(
                key.mark.column,
                Some(key.token),
                YamlToken::BlockMapStart,
                key.mark,
            );
            self.forget_key(last);
            self.key_allowed = false;
        } else {
            self.open_block(
                YamlToken::BlockMapStart,
                "mapping values are not allowed in this context",
            )?;
            self.key_allowed = self.flow_level == 0;
        }
        self.symbol(YamlToken::Value, 1);
        Ok(())
    }

    /// Opens a block at this column, unless it is open or inside a flow collection.
    fn open_block(&mut self, token: YamlToken, problem: &'static str) -> Result<()> {
        if self.flow_level == 0 && !self.key_allowed {
            return Err(self.refuse(self.cursor.mark, problem));
        }
        self.roll(self.cursor.mark.column, None, token, self.cursor.mark);
        Ok(())
    }

    /// Scans a token that may be a key.
    fn word(&mut self, scan: fn(&mut YamlScanner) -> Result<YamlToken>) -> Result<()> {
        self.save_key()?;
        self.key_allowed = false;
        let start = self.cursor.mark;
        let token = scan(self)?;
        self.push(token, start);
        Ok(())
    }

    fn block_scalar(&mut self) -> Result<()> {
        self.drop_key()?;
        self.key_allowed = true;
        let start = self.cursor.mark;
        let token = self.scan_block_scalar()?;
        self.push(token, start);
        Ok(())
    }

    fn symbol(&mut self, token: YamlToken, width: usize) {
        let start = self.cursor.mark;
        self.cursor.skip(width);
        self.push(token, start);
    }

    fn push(&mut self, token: YamlToken, start: TextPosition) {
        self.tokens.push_back(PlacedToken {
            token,
            start,
            end: self.cursor.mark,
        });
    }

    /// Inserts a token before the token of this number, or at the front if that was consumed.
    fn insert(&mut self, number: usize, token: YamlToken, mark: TextPosition) {
        let at = number
            .checked_sub(self.n_taken)
            .filter(|at| *at <= self.tokens.len());
        self.tokens.insert(
            at.unwrap_or(self.tokens.len()),
            PlacedToken {
                token,
                start: mark,
                end: mark,
            },
        );
    }

    fn next_number(&self) -> usize {
        self.n_taken + self.tokens.len()
    }

    fn roll(&mut self, column: usize, number: Option<usize>, token: YamlToken, mark: TextPosition) {
        let column = column as isize;
        if self.flow_level == 0 && self.indent < column {
            self.indents.push(self.indent);
            self.indent = column;
            self.insert(number.unwrap_or(self.next_number()), token, mark);
        }
    }

    fn unroll(&mut self, column: isize) {
        while self.flow_level == 0 && self.indent > column {
            self.push(YamlToken::BlockEnd, self.cursor.mark);
            self.indent = self.indents.pop().unwrap_or(-1);
        }
    }

    fn save_key(&mut self) -> Result<()> {
        if !self.key_allowed {
            return Ok(());
        }
        let mark = self.cursor.mark;
        let is_required = self.flow_level == 0 && self.indent == mark.column as isize;
        let key = PossibleKey {
            is_possible: true,
            is_required,
            token: self.next_number(),
            mark,
        };
        self.drop_key()?;
        let last = self.keys.len() - 1;
        self.keys[last] = key;
        self.keys_by_token.insert(key.token, last);
        Ok(())
    }

    fn drop_key(&mut self) -> Result<()> {
        let last = self.keys.len() - 1;
        let key = self.keys[last];
        if key.is_possible && key.is_required {
            return Err(self.refuse(key.mark, "could not find expected ':'"));
        }
        if key.is_possible {
            self.forget_key(last);
        }
        Ok(())
    }

    fn forget_key(&mut self, at: usize) {
        self.keys[at].is_possible = false;
        self.keys_by_token.remove(&self.keys[at].token);
    }

    /// Whether a possible key is still one.
    fn is_valid(&mut self, at: usize) -> Result<bool> {
        let key = self.keys[at];
        let mark = self.cursor.mark;
        let is_stale = key.mark.line < mark.line || key.mark.index + MAX_KEY < mark.index;
        if key.is_possible && is_stale && key.is_required {
            return Err(self.refuse(key.mark, "could not find expected ':'"));
        }
        self.keys[at].is_possible &= !is_stale;
        Ok(self.keys[at].is_possible)
    }

    /// Kubernetes: go-yaml reports no line if the problem is on the first (decode.go, parser.fail).
    pub(super) fn refuse(&self, context: TextPosition, problem: &'static str) -> Box<YamlError> {
        let line = match self.cursor.mark.line {
            0 => context.line,
            line => line + 1,
        };
        Box::new(YamlError::Syntax { line, problem })
    }
}
