//! Where the reader is in a text, and what kinds of characters there are.

use super::{Result, YamlError};

/// A place in the text; everything is counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// Walks over the characters of a text.
pub(super) struct Cursor {
    chars: Vec<char>,
    pub(super) mark: Mark,
}

impl Cursor {
    /// Starts at the beginning, after a byte order mark. Control characters are refused here, so that NUL
    /// can stand for the end from now on.
    pub(super) fn new(text: &[u8]) -> Result<Cursor> {
        let refuse = |problem| Box::new(YamlError::Syntax { line: 0, problem });
        let text = std::str::from_utf8(text).map_err(|error| match error.error_len() {
            None => refuse("incomplete UTF-8 octet sequence"),
            Some(_) if !starts_sequence(text[error.valid_up_to()]) => {
                refuse("invalid leading UTF-8 octet")
            }
            Some(_) => refuse("invalid trailing UTF-8 octet"),
        })?;
        let chars: Vec<char> = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .chars()
            .collect();
        match chars.iter().any(|char| is_control(*char)) {
            true => Err(refuse("control characters are not allowed")),
            false => Ok(Cursor {
                chars,
                mark: Mark::default(),
            }),
        }
    }

    /// The next character, NUL at the end.
    pub(super) fn char(&self) -> char {
        self.ahead(0)
    }

    /// The character `n` places ahead.
    pub(super) fn ahead(&self, n: usize) -> char {
        self.chars.get(self.mark.index + n).copied().unwrap_or('\0')
    }

    /// Whether a line begins here that only says where a document begins or ends.
    pub(super) fn at_document_indicator(&self) -> bool {
        let indicator = [self.ahead(0), self.ahead(1), self.ahead(2)];
        let is_indicator = matches!(indicator, ['-', '-', '-'] | ['.', '.', '.']);
        self.mark.column == 0 && is_indicator && is_blank_or_end(self.ahead(3))
    }

    pub(super) fn skip(&mut self, n: usize) {
        self.mark.index += n;
        self.mark.column += n;
    }

    /// Takes the next character, which ends no line.
    pub(super) fn read(&mut self, out: &mut String) {
        out.push(self.char());
        self.skip(1);
    }

    /// Takes the line end that is next, if one is. All but the two Unicode has of its own become `\n`.
    pub(super) fn read_break(&mut self, out: &mut String) {
        let char = self.char();
        if !is_break(char) {
            return;
        }
        let width = if char == '\r' && self.ahead(1) == '\n' {
            2
        } else {
            1
        };
        out.push(if matches!(char, '\u{2028}' | '\u{2029}') {
            char
        } else {
            '\n'
        });
        self.mark = Mark {
            index: self.mark.index + width,
            line: self.mark.line + 1,
            column: 0,
        };
    }

    pub(super) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    /// Skips blanks and tabs.
    pub(super) fn skip_blanks(&mut self) {
        while is_blank(self.char()) {
            self.skip(1);
        }
    }

    /// Skips a comment up to the end of its line, if one begins here.
    pub(super) fn skip_comment(&mut self) {
        if self.char() == '#' {
            while !is_break_or_end(self.char()) {
                self.skip(1);
            }
        }
    }
}

fn starts_sequence(byte: u8) -> bool {
    matches!(byte, 0xc0..=0xf7)
}

fn is_control(char: char) -> bool {
    !matches!(char,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..)
}

pub(super) fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t')
}

/// Whether it ends a line, in the eyes of YAML 1.1.
pub(super) fn is_break(char: char) -> bool {
    matches!(char, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_break_or_end(char: char) -> bool {
    is_break(char) || char == '\0'
}

pub(super) fn is_blank_or_end(char: char) -> bool {
    is_blank(char) || is_break_or_end(char)
}

/// Whether it may stand in the name of an anchor or directive.
pub(super) fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}
