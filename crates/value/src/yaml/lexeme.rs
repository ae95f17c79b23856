//! Scalars in each of their styles, anchors, tags and directives.

use super::Result;
use super::cursor::{TextPosition, is_blank, is_blank_or_end, is_break, is_break_or_end, is_name};
use super::scan::{YamlScanner, YamlToken};

impl YamlScanner {
    /// `&name` or `*name`.
    pub(super) fn scan_anchor(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        let is_alias = self.cursor.char() == '*';
        self.cursor.skip(1);
        let name = self.scan_name();
        let next = self.cursor.char();
        if name.is_empty() || !(is_blank_or_end(next) || "?:,]}%@`".contains(next)) {
            return Err(self.refuse(
                start,
                "did not find expected alphabetic or numeric character",
            ));
        }
        Ok(if is_alias {
            YamlToken::Alias(name)
        } else {
            YamlToken::Anchor(name)
        })
    }

    fn scan_name(&mut self) -> String {
        let mut name = String::new();
        while is_name(self.cursor.char()) {
            self.cursor.read(&mut name);
        }
        name
    }

    /// `!`, `!name`, `!!name`, `!handle!name` or `!<name>`.
    pub(super) fn scan_tag(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        let (handle, suffix) = if self.cursor.ahead(1) == '<' {
            self.cursor.skip(2);
            let suffix = self.scan_uri(String::new(), false, start)?;
            if self.cursor.char() != '>' {
                return Err(self.refuse(start, "did not find the expected '>'"));
            }
            self.cursor.skip(1);
            (String::new(), suffix)
        } else {
            self.scan_short_tag(start)?
        };
        if !is_blank_or_end(self.cursor.char()) {
            return Err(self.refuse(start, "did not find expected whitespace or line break"));
        }
        Ok(YamlToken::Tag(handle, suffix))
    }

    fn scan_short_tag(&mut self, start: TextPosition) -> Result<(String, String)> {
        let handle = self.scan_handle(false, start)?;
        if handle.len() > 1 && handle.ends_with('!') {
            let suffix = self.scan_uri(String::new(), false, start)?;
            return Ok((handle, suffix));
        }
        match self.scan_uri(handle[1..].into(), true, start)? {
            // `!` alone is a tag of its own.
            suffix if suffix.is_empty() => Ok((suffix, "!".into())),
            suffix => Ok(("!".into(), suffix)),
        }
    }

    fn scan_handle(&mut self, is_directive: bool, start: TextPosition) -> Result<String> {
        let mut handle = String::new();
        if self.cursor.char() != '!' {
            return Err(self.refuse(start, "did not find expected '!'"));
        }
        self.cursor.read(&mut handle);
        handle.push_str(&self.scan_name());
        if self.cursor.char() == '!' {
            self.cursor.read(&mut handle);
        } else if is_directive && handle != "!" {
            return Err(self.refuse(start, "did not find expected '!'"));
        }
        Ok(handle)
    }

    /// Scans the rest of a tag; `uri` was scanned already.
    fn scan_uri(
        &mut self,
        mut uri: String,
        mut is_any: bool,
        start: TextPosition,
    ) -> Result<String> {
        loop {
            match self.cursor.char() {
                '%' => self.scan_uri_escape(&mut uri, start)?,
                char if is_name(char) || ";/?:@&=+$,.!~*'()[]".contains(char) => {
                    self.cursor.read(&mut uri)
                }
                _ if is_any => return Ok(uri),
                _ => return Err(self.refuse(start, "did not find expected tag URI")),
            }
            is_any = true;
        }
    }

    /// Scans one character that is written as percent-encoded UTF-8.
    fn scan_uri_escape(&mut self, uri: &mut String, start: TextPosition) -> Result<()> {
        let mut bytes = vec![self.scan_octet(start)?];
        let width = match bytes[0] {
            0..=0x7f => 1,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => return Err(self.refuse(start, "found an incorrect leading UTF-8 octet")),
        };
        while bytes.len() < width {
            bytes.push(self.scan_octet(start)?);
        }
        match std::str::from_utf8(&bytes) {
            Ok(char) => uri.push_str(char),
            Err(_) => return Err(self.refuse(start, "found an incorrect trailing UTF-8 octet")),
        }
        Ok(())
    }

    fn scan_octet(&mut self, start: TextPosition) -> Result<u8> {
        let digits = (
            self.cursor.char(),
            self.cursor.ahead(1).to_digit(16),
            self.cursor.ahead(2).to_digit(16),
        );
        let ('%', Some(high), Some(low)) = digits else {
            return Err(self.refuse(start, "did not find URI escaped octet"));
        };
        self.cursor.skip(3);
        Ok((high * 16 + low) as u8)
    }

    /// Scans `%YAML` or `%TAG` with its arguments, to the end of the line.
    pub(super) fn scan_directive(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        self.cursor.skip(1);
        let name = self.scan_name();
        if name.is_empty() {
            return Err(self.refuse(start, "could not find expected directive name"));
        }
        if !is_blank_or_end(self.cursor.char()) {
            return Err(self.refuse(start, "found unexpected non-alphabetical character"));
        }
        let token = match name.as_str() {
            "YAML" => self.scan_version(start)?,
            "TAG" => self.scan_tag_directive(start)?,
            _ => return Err(self.refuse(start, "found unknown directive name")),
        };
        self.end_line(start)?;
        Ok(token)
    }

    /// Only a comment may follow on this line.
    fn end_line(&mut self, start: TextPosition) -> Result<()> {
        self.cursor.skip_blanks();
        self.cursor.skip_comment();
        if !is_break_or_end(self.cursor.char()) {
            return Err(self.refuse(start, "did not find expected comment or line break"));
        }
        self.cursor.skip_break();
        Ok(())
    }

    fn scan_version(&mut self, start: TextPosition) -> Result<YamlToken> {
        self.cursor.skip_blanks();
        let major = self.scan_version_number(start)?;
        if self.cursor.char() != '.' {
            return Err(self.refuse(start, "did not find expected digit or '.' character"));
        }
        self.cursor.skip(1);
        Ok(YamlToken::Version(major, self.scan_version_number(start)?))
    }

    fn scan_version_number(&mut self, start: TextPosition) -> Result<u8> {
        let mut digits = String::new();
        while self.cursor.char().is_ascii_digit() {
            if digits.len() == 2 {
                return Err(self.refuse(start, "found extremely long version number"));
            }
            self.cursor.read(&mut digits);
        }
        digits
            .parse()
            .map_err(|_| self.refuse(start, "did not find expected version number"))
    }

    fn scan_tag_directive(&mut self, start: TextPosition) -> Result<YamlToken> {
        self.cursor.skip_blanks();
        let handle = self.scan_handle(true, start)?;
        if !is_blank(self.cursor.char()) {
            return Err(self.refuse(start, "did not find expected whitespace"));
        }
        self.cursor.skip_blanks();
        let prefix = self.scan_uri(String::new(), false, start)?;
        if !is_blank_or_end(self.cursor.char()) {
            return Err(self.refuse(start, "did not find expected whitespace or line break"));
        }
        Ok(YamlToken::TagDirective(handle, prefix))
    }

    /// Scans `|` or `>` and the lines that are indented below it.
    pub(super) fn scan_block_scalar(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        let is_literal = self.cursor.char() == '|';
        self.cursor.skip(1);
        let (chomping, increment) = self.scan_block_header(start)?;
        self.end_line(start)?;
        let mut indent = if increment == 0 {
            0
        } else {
            self.indent.max(0) as usize + increment
        };

        let (mut text, mut first_break, mut more_breaks) =
            (String::new(), String::new(), String::new());
        self.scan_block_breaks(&mut indent, &mut more_breaks, start)?;
        let mut was_blank = false;
        while self.cursor.mark.column == indent && self.cursor.char() != '\0' {
            let starts_blank = is_blank(self.cursor.char());
            let is_folded = !is_literal && !was_blank && !starts_blank && first_break == "\n";
            match is_folded {
                true if more_breaks.is_empty() => text.push(' '),
                true => {}
                false => text.push_str(&first_break),
            }
            text.push_str(&more_breaks);
            first_break.clear();
            more_breaks.clear();
            was_blank = starts_blank;
            while !is_break_or_end(self.cursor.char()) {
                self.cursor.read(&mut text);
            }
            self.cursor.read_break(&mut first_break);
            self.scan_block_breaks(&mut indent, &mut more_breaks, start)?;
        }
        if chomping != '-' {
            text.push_str(&first_break);
        }
        if chomping == '+' {
            text.push_str(&more_breaks);
        }
        Ok(YamlToken::Scalar(text, false))
    }

    /// Scans the chomping indicator (`-`, `+`, or a space for none) and the indentation indicator
    /// (0 if it is detected from the first line), in either order.
    fn scan_block_header(&mut self, start: TextPosition) -> Result<(char, usize)> {
        let (mut chomping, mut increment) = (' ', 0);
        for _ in 0..2 {
            match self.cursor.char() {
                '0' if increment == 0 => {
                    return Err(self.refuse(start, "found an indentation indicator equal to 0"));
                }
                digit @ '1'..='9' if increment == 0 => increment = digit as usize - '0' as usize,
                sign @ ('+' | '-') if chomping == ' ' => chomping = sign,
                _ => break,
            }
            self.cursor.skip(1);
        }
        Ok((chomping, increment))
    }

    /// Skips indentation and consumes empty lines; detects the indentation of the block if it is
    /// not given.
    fn scan_block_breaks(
        &mut self,
        indent: &mut usize,
        breaks: &mut String,
        start: TextPosition,
    ) -> Result<()> {
        let mut deepest = 0;
        loop {
            let is_before = |column: usize| *indent == 0 || column < *indent;
            while is_before(self.cursor.mark.column) && self.cursor.char() == ' ' {
                self.cursor.skip(1);
            }
            deepest = deepest.max(self.cursor.mark.column);
            if is_before(self.cursor.mark.column) && self.cursor.char() == '\t' {
                let problem = "found a tab character where an indentation space is expected";
                return Err(self.refuse(start, problem));
            }
            if !is_break(self.cursor.char()) {
                break;
            }
            self.cursor.read_break(breaks);
        }
        if *indent == 0 {
            *indent = deepest.max((self.indent + 1).max(1) as usize);
        }
        Ok(())
    }

    /// Scans a scalar in single or double quotes.
    pub(super) fn scan_quoted(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        let quote = self.cursor.char();
        self.cursor.skip(1);
        let mut text = String::new();
        loop {
            if self.cursor.at_document_indicator() {
                return Err(self.refuse(start, "found unexpected document indicator"));
            }
            if self.cursor.char() == '\0' {
                return Err(self.refuse(start, "found unexpected end of stream"));
            }
            let is_joined = self.scan_quoted_word(quote, &mut text, start)?;
            if self.cursor.char() == quote {
                self.cursor.skip(1);
                return Ok(YamlToken::Scalar(text, false));
            }
            let mut space = LineFolding {
                is_joined,
                ..LineFolding::default()
            };
            self.scan_space(&mut space, None)?;
            space.fold_into(&mut text);
        }
    }

    /// Scans to a space, a line break or the closing quote. Returns whether it stopped at an
    /// escaped line break, which joins two lines.
    fn scan_quoted_word(
        &mut self,
        quote: char,
        text: &mut String,
        start: TextPosition,
    ) -> Result<bool> {
        while !is_blank_or_end(self.cursor.char()) {
            match (self.cursor.char(), self.cursor.ahead(1)) {
                ('\'', '\'') if quote == '\'' => {
                    text.push('\'');
                    self.cursor.skip(2);
                }
                (char, _) if char == quote => break,
                ('\\', next) if quote == '"' && is_break(next) => {
                    self.cursor.skip(1);
                    self.cursor.skip_break();
                    return Ok(true);
                }
                ('\\', next) if quote == '"' => self.scan_escape(next, text, start)?,
                _ => self.cursor.read(text),
            }
        }
        Ok(false)
    }

    fn scan_escape(&mut self, code: char, text: &mut String, start: TextPosition) -> Result<()> {
        let n_digits = match code {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                let char = unescape(code);
                text.push(
                    char.ok_or_else(|| self.refuse(start, "found unknown escape character"))?,
                );
                self.cursor.skip(2);
                return Ok(());
            }
        };
        self.cursor.skip(2);
        let mut value = 0u32;
        for at in 0..n_digits {
            let digit = self.cursor.ahead(at).to_digit(16);
            let digit = digit
                .ok_or_else(|| self.refuse(start, "did not find expected hexdecimal number"))?;
            value = value << 4 | digit;
        }
        let char = char::from_u32(value);
        text.push(
            char.ok_or_else(|| self.refuse(start, "found invalid Unicode character escape code"))?,
        );
        self.cursor.skip(n_digits);
        Ok(())
    }

    /// Scans a plain scalar, which may span indented lines.
    pub(super) fn scan_plain(&mut self) -> Result<YamlToken> {
        let start = self.cursor.mark;
        let indent = (self.indent + 1) as usize;
        let (mut text, mut space) = (String::new(), LineFolding::default());
        while !self.cursor.at_document_indicator() && self.cursor.char() != '#' {
            while !is_blank_or_end(self.cursor.char()) && !self.ends_plain() {
                std::mem::take(&mut space).fold_into(&mut text);
                self.cursor.read(&mut text);
            }
            if !is_blank(self.cursor.char()) && !is_break(self.cursor.char()) {
                break;
            }
            self.scan_space(&mut space, Some((indent, start)))?;
            if self.flow_level == 0 && self.cursor.mark.column < indent {
                break;
            }
        }
        // A key may start after a line break.
        self.key_allowed |= space.is_joined;
        Ok(YamlToken::Scalar(text, true))
    }

    fn ends_plain(&self) -> bool {
        match self.cursor.char() {
            ':' => is_blank_or_end(self.cursor.ahead(1)),
            char => self.flow_level > 0 && ",?[]{}".contains(char),
        }
    }

    /// Consumes spaces and line breaks. In a plain scalar, tabs are not indentation.
    fn scan_space(
        &mut self,
        space: &mut LineFolding,
        plain: Option<(usize, TextPosition)>,
    ) -> Result<()> {
        loop {
            let char = self.cursor.char();
            if is_blank(char) {
                if let Some((indent, start)) = plain
                    && space.is_joined
                    && self.cursor.mark.column < indent
                    && char == '\t'
                {
                    return Err(
                        self.refuse(start, "found a tab character that violates indentation")
                    );
                }
                match space.is_joined {
                    false => self.cursor.read(&mut space.blanks),
                    true => self.cursor.skip(1),
                }
            } else if !is_break(char) {
                return Ok(());
            } else if space.is_joined {
                self.cursor.read_break(&mut space.more_breaks);
            } else {
                self.cursor.read_break(&mut space.first_break);
                space.blanks.clear();
                space.is_joined = true;
            }
        }
    }
}

/// White space between two words of a scalar, before line folding.
#[derive(Default)]
struct LineFolding {
    blanks: String,
    /// Whether it contains a line break.
    is_joined: bool,
    first_break: String,
    more_breaks: String,
}

impl LineFolding {
    /// Folds it: a single line break becomes a space, of several the first is dropped.
    fn fold_into(self, text: &mut String) {
        match self.first_break.as_str() {
            "\n" if self.more_breaks.is_empty() => text.push(' '),
            "\n" => {}
            other => text.push_str(other),
        }
        text.push_str(if self.is_joined {
            &self.more_breaks
        } else {
            &self.blanks
        });
    }
}

/// The character of a one-letter escape.
fn unescape(code: char) -> Option<char> {
    Some(match code {
        '0' => '\0',
        'a' => '\x07',
        'b' => '\x08',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\x0b',
        'f' => '\x0c',
        'r' => '\r',
        'e' => '\x1b',
        ' ' | '"' | '\'' | '\\' => code,
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        _ => return None,
    })
}
