//! The position in the text, and character classes.

use super::{Result, YamlError};

/// A position in the text, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TextPosition {
    pub(super) index: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A cursor over the characters of a text.
pub(super) struct Cursor {
    chars: Vec<char>,
    pub(super) mark: TextPosition,
}

impl Cursor {
    /// Starts after a byte order mark. Control characters are rejected here, so that NUL can mark
    /// the end.
    pub(super) fn new(text: &[u8]) -> Result<Cursor> {
        let refuse = |problem| Box::new(YamlError::Syntax { line: 0, problem });
        let text = std::str::from_utf8(text).map_err(|error| match error.error_len() {
            None => refuse("incomplete UTF-8 octet sequence"),
            Some(_) if !matches!(text[error.valid_up_to()], 0xc0..=0xf7) => {
                refuse("invalid leading UTF-8 octet")
            }
            Some(_) => refuse("invalid trailing UTF-8 octet"),
        })?;
        let chars: Vec<char> = text
            .strip_prefix('\u{feff}')
            .unwrap_or(text)
            .chars()
            .collect();
        let is_allowed = |char: &char| {
            matches!(char, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
                | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
        };
        match !chars.iter().all(is_allowed) {
            true => Err(refuse("control characters are not allowed")),
            false => Ok(Cursor {
                chars,
                mark: TextPosition::default(),
            }),
        }
    }

    /// The next character, NUL at the end.
    pub(super) fn char(&self) -> char {
        self.ahead(0)
    }

    /// The character `n` positions ahead.
    pub(super) fn ahead(&self, n: usize) -> char {
        self.chars.get(self.mark.index + n).copied().unwrap_or('\0')
    }

    /// Whether this line is a document marker (`---` or `...`).
    pub(super) fn at_document_indicator(&self) -> bool {
        let indicator = [self.ahead(0), self.ahead(1), self.ahead(2)];
        let is_indicator = matches!(indicator, ['-', '-', '-'] | ['.', '.', '.']);
        self.mark.column == 0 && is_indicator && is_blank_or_end(self.ahead(3))
    }

    pub(super) fn skip(&mut self, n: usize) {
        self.mark.index += n;
        self.mark.column += n;
    }

    /// Consumes the next character, which is not a line break.
    pub(super) fn read(&mut self, out: &mut String) {
        out.push(self.char());
        self.skip(1);
    }

    /// Consumes the next line break, if any. All but U+2028 and U+2029 become `\n`.
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
        self.mark = TextPosition {
            index: self.mark.index + width,
            line: self.mark.line + 1,
            column: 0,
        };
    }

    pub(super) fn skip_break(&mut self) {
        self.read_break(&mut String::new());
    }

    /// Skips spaces and tabs.
    pub(super) fn skip_blanks(&mut self) {
        while is_blank(self.char()) {
            self.skip(1);
        }
    }

    /// Skips a comment to the end of its line.
    pub(super) fn skip_comment(&mut self) {
        if self.char() == '#' {
            while !is_break_or_end(self.char()) {
                self.skip(1);
            }
        }
    }
}

pub(super) fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t')
}

/// Whether it is a line break in YAML 1.1.
pub(super) fn is_break(char: char) -> bool {
    matches!(char, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn is_break_or_end(char: char) -> bool {
    is_break(char) || char == '\0'
}

pub(super) fn is_blank_or_end(char: char) -> bool {
    is_blank(char) || is_break_or_end(char)
}

/// Whether it may be in the name of an anchor or directive.
pub(super) fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}
