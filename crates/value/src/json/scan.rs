//! A pull scanner over JSON text. The caller says what it expects; errors are those of Go's
//! scanner, because clients see them in a Status.

use crate::Str;

use super::{MAX_DEPTH, plain_run};

/// Why the text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The text ends too early.
    #[error("unexpected end of JSON input")]
    End,
    /// An unexpected byte.
    #[error("invalid character {} {context}", quote_char(*.found))]
    Character {
        /// The byte.
        found: u8,
        /// What the scanner was reading.
        context: &'static str,
    },
    /// Arrays or objects are nested too deeply.
    #[error("exceeded max depth")]
    Depth,
}

fn quote_char(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\\' => r"'\\'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        0x07 => r"'\a'".into(),
        0x08 => r"'\b'".into(),
        0x0b => r"'\v'".into(),
        0x0c => r"'\f'".into(),
        0x00..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0x9f | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

/// A scanner over JSON text.
pub struct JsonScanner<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// Whether the innermost open map or list is still empty.
    first: bool,
}

impl<'a> JsonScanner<'a> {
    /// A scanner at the start of `text`.
    pub fn new(text: &'a [u8]) -> JsonScanner<'a> {
        JsonScanner {
            text,
            at: 0,
            depth: 0,
            first: false,
        }
    }

    /// The first byte of the next value.
    pub fn peek(&mut self) -> Result<u8, SyntaxError> {
        match self.skip_space()? {
            byte @ (b'{' | b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => Ok(byte),
            _ => self.refuse("looking for beginning of value"),
        }
    }

    /// The current offset.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The text between two offsets.
    pub fn slice(&self, from: usize, to: usize) -> &'a [u8] {
        &self.text[from..to]
    }

    /// Enters the map that starts here.
    pub fn open_map(&mut self) -> Result<(), SyntaxError> {
        self.open()
    }

    /// Enters the list that starts here.
    pub fn open_list(&mut self) -> Result<(), SyntaxError> {
        self.open()
    }

    fn open(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        self.depth += 1;
        self.first = true;
        if self.depth > MAX_DEPTH {
            Err(SyntaxError::Depth)
        } else {
            Ok(())
        }
    }

    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
        self.first = false;
    }

    /// The next key of the open map, or `None` at its end.
    pub fn key(&mut self) -> Result<Option<Str>, SyntaxError> {
        let first = std::mem::replace(&mut self.first, false);
        match self.skip_space()? {
            b'}' => {
                self.close();
                return Ok(None);
            }
            b',' if !first => {
                self.at += 1;
                self.skip_space()?;
            }
            _ if !first => return self.refuse("after object key:value pair"),
            _ => {}
        }
        if self.text[self.at] != b'"' {
            return self.refuse("looking for beginning of object key string");
        }
        let key = self.string()?;
        match self.skip_space()? {
            b':' => self.at += 1,
            _ => return self.refuse("after object key"),
        }
        Ok(Some(key))
    }

    /// Whether the open list has another item; leaves the list at its end.
    pub fn item(&mut self) -> Result<bool, SyntaxError> {
        let first = std::mem::replace(&mut self.first, false);
        match self.skip_space()? {
            b']' => {
                self.close();
                Ok(false)
            }
            b',' if !first => {
                self.at += 1;
                self.peek()?;
                Ok(true)
            }
            _ if !first => self.refuse("after array element"),
            _ => Ok(true),
        }
    }

    /// Checks that only white space follows.
    pub fn end(&mut self) -> Result<(), SyntaxError> {
        match self.skip_space() {
            Err(_) => Ok(()),
            Ok(_) => self.refuse("after top-level value"),
        }
    }

    /// The literal of the number that starts here.
    pub fn number(&mut self) -> Result<&'a str, SyntaxError> {
        let start = self.at;
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        match self.byte()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return self.refuse("in numeric literal"),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let b'+' | b'-' = self.byte()? {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        Ok(std::str::from_utf8(&self.text[start..self.at]).expect("a number is ASCII"))
    }

    fn some_digits(&mut self, context: &'static str) -> Result<(), SyntaxError> {
        match self.byte()? {
            b'0'..=b'9' => self.digits(),
            _ => return self.refuse(context),
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// The boolean that starts here.
    pub fn bool(&mut self) -> Result<bool, SyntaxError> {
        let truth = self.text[self.at] == b't';
        if truth {
            self.literal(
                b"true",
                &[
                    "in literal true (expecting 'r')",
                    "in literal true (expecting 'u')",
                    "in literal true (expecting 'e')",
                ],
            )?;
        } else {
            self.literal(
                b"false",
                &[
                    "in literal false (expecting 'a')",
                    "in literal false (expecting 'l')",
                    "in literal false (expecting 's')",
                    "in literal false (expecting 'e')",
                ],
            )?;
        }
        Ok(truth)
    }

    /// The `null` that starts here.
    pub fn null(&mut self) -> Result<(), SyntaxError> {
        self.literal(
            b"null",
            &[
                "in literal null (expecting 'u')",
                "in literal null (expecting 'l')",
                "in literal null (expecting 'l')",
            ],
        )
    }

    fn literal(&mut self, word: &[u8], contexts: &[&'static str]) -> Result<(), SyntaxError> {
        self.at += 1;
        for (expected, context) in word[1..].iter().zip(contexts) {
            if self.byte()? != *expected {
                return self.refuse(context);
            }
            self.at += 1;
        }
        Ok(())
    }

    /// The string that starts here. Invalid Unicode is replaced, as Go does.
    pub fn string(&mut self) -> Result<Str, SyntaxError> {
        self.at += 1;
        let start = self.at;
        match self.plain()? {
            b'"' => {}
            b'\\' => return self.long_string(start),
            _ => return self.refuse("in string literal"),
        }
        let plain = &self.text[start..self.at];
        self.at += 1;
        Ok(match std::str::from_utf8(plain) {
            Ok(text) => text.into(),
            Err(_) => replace_invalid(plain).into(),
        })
    }

    /// Skips the string that starts here.
    pub fn skip_string(&mut self) -> Result<(), SyntaxError> {
        self.at += 1;
        loop {
            match self.plain()? {
                b'"' => break,
                b'\\' => self.escape(&mut Vec::new())?,
                _ => return self.refuse("in string literal"),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// Advances to the end of the string, an escape, or an invalid byte.
    fn plain(&mut self) -> Result<u8, SyntaxError> {
        self.at += plain_run(&self.text[self.at..], |byte| {
            byte < 0x20 || matches!(byte, b'"' | b'\\')
        });
        self.byte()
    }

    fn long_string(&mut self, start: usize) -> Result<Str, SyntaxError> {
        let mut out = self.text[start..self.at].to_vec();
        loop {
            let plain = self.at;
            let special = self.plain()?;
            out.extend_from_slice(&self.text[plain..self.at]);
            match special {
                b'"' => break,
                b'\\' => self.escape(&mut out)?,
                _ => return self.refuse("in string literal"),
            }
        }
        self.at += 1;
        Ok(match String::from_utf8(out) {
            Ok(text) => text.into(),
            Err(error) => replace_invalid(error.as_bytes()).into(),
        })
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        self.at += 1;
        let plain = match self.byte()? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'u' => return self.unicode_escape(out),
            _ => return self.refuse("in string escape code"),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    fn unicode_escape(&mut self, out: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let first = self.hex4()?;
        let char = match first {
            0xd800..=0xdbff if self.text[self.at..].starts_with(b"\\u") => {
                let back = self.at;
                self.at += 1;
                match self.hex4()? {
                    second @ 0xdc00..=0xdfff => {
                        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
                    }
                    _ => {
                        self.at = back;
                        None
                    }
                }
            }
            _ => char::from_u32(first),
        };
        let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Parses four hexadecimal digits after the `u`.
    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        self.at += 1;
        let mut number = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.byte()?).to_digit(16) else {
                return self.refuse("in \\u hexadecimal character escape");
            };
            number = number * 16 + digit;
            self.at += 1;
        }
        Ok(number)
    }

    fn skip_space(&mut self) -> Result<u8, SyntaxError> {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.text.get(self.at) {
            self.at += 1;
        }
        self.byte()
    }

    fn byte(&self) -> Result<u8, SyntaxError> {
        self.text.get(self.at).copied().ok_or(SyntaxError::End)
    }

    fn refuse<T>(&self, context: &'static str) -> Result<T, SyntaxError> {
        Err(SyntaxError::Character {
            found: self.text[self.at],
            context,
        })
    }
}

/// Replaces each byte that is not part of valid UTF-8 with U+FFFD, as Go does.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}
