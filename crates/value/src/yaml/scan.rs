//! From characters to tokens.
//!
//! Two things make YAML's tokens depend on each other. Indentation opens and closes blocks, for which tokens
//! are made that no character stands for. And whether a word is a key is known only once a colon follows,
//! so the place of each possible key is remembered and the token put there afterwards.

use std::collections::{HashMap, VecDeque};

use super::cursor::{Cursor, Mark, is_blank, is_blank_or_end, is_break};
use super::{Result, YamlError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
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
    /// A handle and what follows it.
    Tag(String, String),
    /// A text, and whether it stands there without any marks around it.
    Scalar(String, bool),
}

/// A token and where it begins and ends.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) start: Mark,
    pub(super) end: Mark,
}

pub(super) struct Scanner {
    pub(super) cursor: Cursor,
    tokens: VecDeque<Placed>,
    /// How many tokens were taken.
    n_taken: usize,
    pub(super) flow_level: usize,
    /// The column of the innermost block, -1 outside of all.
    pub(super) indent: isize,
    indents: Vec<isize>,
    /// Whether a key or a block may begin here.
    pub(super) key_allowed: bool,
    /// What may become a key, for each flow level.
    keys: Vec<PossibleKey>,
    /// Where in `keys` the key is that begins with a token.
    keys_by_token: HashMap<usize, usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PossibleKey {
    is_possible: bool,
    /// Whether it must be one: nothing else can begin a line of a block map.
    is_required: bool,
    token: usize,
    mark: Mark,
}

/// A key ends on the line on which it begins, and has no more characters than this.
const MAX_KEY: usize = 1024;

impl Scanner {
    pub(super) fn new(text: &[u8]) -> Result<Scanner> {
        Ok(Scanner {
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

    /// The next token, which stays.
    pub(super) fn peek(&mut self) -> Result<&Placed> {
        while self.needs_more()? {
            self.fetch()?;
        }
        Ok(&self.tokens[0])
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Result<Placed> {
        let end = Placed {
            token: Token::StreamEnd,
            ..*self.peek()?
        };
        // The end of the stream is never passed.
        if self.tokens[0].token == Token::StreamEnd {
            return Ok(end);
        }
        self.n_taken += 1;
        Ok(self.tokens.pop_front().unwrap_or(end))
    }

    /// Whether the first token is still unknown, because something may have to stand before it.
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
            '[' => self.flow_start(Token::FlowListStart),
            '{' => self.flow_start(Token::FlowMapStart),
            ']' => self.flow_end(Token::FlowListEnd),
            '}' => self.flow_end(Token::FlowMapEnd),
            ',' => self.flow_entry(),
            '-' if is_blank_or_end(next) => self.block_entry(),
            '?' if self.flow_level > 0 || is_blank_or_end(next) => self.key(),
            ':' if self.flow_level > 0 || is_blank_or_end(next) => self.value(),
            '*' | '&' => self.word(Scanner::scan_anchor),
            '!' => self.word(Scanner::scan_tag),
            '|' | '>' if self.flow_level == 0 => self.block_scalar(),
            '\'' | '"' => self.word(Scanner::scan_quoted),
            _ if self.starts_plain(char, next) => self.word(Scanner::scan_plain),
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

    /// A tab counts as white space only where no block can begin.
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
        self.push(Token::StreamEnd, self.cursor.mark);
        Ok(())
    }

    /// Closes all blocks, before something that stands outside of documents.
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
                Token::DocumentStart
            } else {
                Token::DocumentEnd
            },
            3,
        );
        Ok(())
    }

    fn flow_start(&mut self, token: Token) -> Result<()> {
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

    fn flow_end(&mut self, token: Token) -> Result<()> {
        self.drop_key()?;
        if self.flow_level > 0 {
            self.flow_level -= 1;
            // Kubernetes: a collection without a key in it takes the possible key that it is with it, so
            // `[]: x` has no key (scannerc.go, yaml_parser_decrease_flow_level).
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
        self.symbol(Token::FlowEntry, 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<()> {
        self.open_block(
            Token::BlockListStart,
            "block sequence entries are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = true;
        self.symbol(Token::BlockEntry, 1);
        Ok(())
    }

    fn key(&mut self) -> Result<()> {
        self.open_block(
            Token::BlockMapStart,
            "mapping keys are not allowed in this context",
        )?;
        self.drop_key()?;
        self.key_allowed = self.flow_level == 0;
        self.symbol(Token::Key, 1);
        Ok(())
    }

    fn value(&mut self) -> Result<()> {
        let last = self.keys.len() - 1;
        if self.is_valid(last)? {
            let key = self.keys[last];
            self.insert(key.token, Token::Key, key.mark);
            self.roll(
                key.mark.column,
                Some(key.token),
                Token::BlockMapStart,
                key.mark,
            );
            self.forget_key(last);
            self.key_allowed = false;
        } else {
            self.open_block(
                Token::BlockMapStart,
                "mapping values are not allowed in this context",
            )?;
            self.key_allowed = self.flow_level == 0;
        }
        self.symbol(Token::Value, 1);
        Ok(())
    }

    /// Opens a block at this column, unless it is open or we are not among blocks.
    fn open_block(&mut self, token: Token, problem: &'static str) -> Result<()> {
        if self.flow_level == 0 && !self.key_allowed {
            return Err(self.refuse(self.cursor.mark, problem));
        }
        self.roll(self.cursor.mark.column, None, token, self.cursor.mark);
        Ok(())
    }

    /// Something that may be a key.
    fn word(&mut self, scan: fn(&mut Scanner) -> Result<Token>) -> Result<()> {
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

    fn symbol(&mut self, token: Token, width: usize) {
        let start = self.cursor.mark;
        self.cursor.skip(width);
        self.push(token, start);
    }

    fn push(&mut self, token: Token, start: Mark) {
        self.tokens.push_back(Placed {
            token,
            start,
            end: self.cursor.mark,
        });
    }

    /// Puts a token before the token with a number; at the end if that was already taken.
    fn insert(&mut self, number: usize, token: Token, mark: Mark) {
        let at = number
            .checked_sub(self.n_taken)
            .filter(|at| *at <= self.tokens.len());
        self.tokens.insert(
            at.unwrap_or(self.tokens.len()),
            Placed {
                token,
                start: mark,
                end: mark,
            },
        );
    }

    /// The number that the next token will have.
    fn next_number(&self) -> usize {
        self.n_taken + self.tokens.len()
    }

    fn roll(&mut self, column: usize, number: Option<usize>, token: Token, mark: Mark) {
        let column = column as isize;
        if self.flow_level == 0 && self.indent < column {
            self.indents.push(self.indent);
            self.indent = column;
            self.insert(number.unwrap_or(self.next_number()), token, mark);
        }
    }

    fn unroll(&mut self, column: isize) {
        while self.flow_level == 0 && self.indent > column {
            self.push(Token::BlockEnd, self.cursor.mark);
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

    /// Whether what may be a key still may.
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

    /// Kubernetes: go-yaml names no line if the problem is on the first (decode.go, parser.fail).
    pub(super) fn refuse(&self, context: Mark, problem: &'static str) -> Box<YamlError> {
        let line = match self.cursor.mark.line {
            0 => context.line,
            line => line + 1,
        };
        Box::new(YamlError::Syntax { line, problem })
    }
}
