//! The lexer. Positions count characters. Unknown text is reported and skipped as ANTLR does: the
//! longest token wins, and an error covers the text up to where no token could continue.

use super::source::Issue;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum TokenKind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscapedIdent,
}

impl TokenKind {
    /// Every kind, in the order of messages.
    pub(super) const ALL: [TokenKind; 36] = [
        TokenKind::Eof,
        TokenKind::Equals,
        TokenKind::NotEquals,
        TokenKind::In,
        TokenKind::Less,
        TokenKind::LessEquals,
        TokenKind::GreaterEquals,
        TokenKind::Greater,
        TokenKind::And,
        TokenKind::Or,
        TokenKind::LeftBracket,
        TokenKind::RightBracket,
        TokenKind::LeftBrace,
        TokenKind::RightBrace,
        TokenKind::LeftParen,
        TokenKind::RightParen,
        TokenKind::Dot,
        TokenKind::Comma,
        TokenKind::Minus,
        TokenKind::Exclamation,
        TokenKind::Question,
        TokenKind::Colon,
        TokenKind::Plus,
        TokenKind::Star,
        TokenKind::Slash,
        TokenKind::Percent,
        TokenKind::True,
        TokenKind::False,
        TokenKind::Null,
        TokenKind::Float,
        TokenKind::Int,
        TokenKind::Uint,
        TokenKind::String,
        TokenKind::Bytes,
        TokenKind::Ident,
        TokenKind::EscapedIdent,
    ];

    pub(super) fn name(self) -> &'static str {
        const NAMES: [&str; 36] = [
            "<EOF>",
            "'=='",
            "'!='",
            "'in'",
            "'<'",
            "'<='",
            "'>='",
            "'>'",
            "'&&'",
            "'||'",
            "'['",
            "']'",
            "'{'",
            "'}'",
            "'('",
            "')'",
            "'.'",
            "','",
            "'-'",
            "'!'",
            "'?'",
            "':'",
            "'+'",
            "'*'",
            "'/'",
            "'%'",
            "'true'",
            "'false'",
            "'null'",
            "NUM_FLOAT",
            "NUM_INT",
            "NUM_UINT",
            "STRING",
            "BYTES",
            "IDENTIFIER",
            "ESC_IDENTIFIER",
        ];
        NAMES[self as usize]
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LexToken {
    pub(crate) kind: TokenKind,
    /// The start of the token.
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// All tokens, the last being the end; and errors, whose text is blanked out.
pub(super) fn lex(text: &mut [char]) -> (Vec<LexToken>, Vec<Issue>) {
    let (mut tokens, mut issues, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let scan = CelLexer { text, at };
        match scan.word() {
            (Some((kind, end)), _) => {
                if let Some(kind) = kind {
                    tokens.push(LexToken {
                        kind,
                        at,
                        text: text[at..end].iter().collect(),
                    });
                }
                at = end;
            }
            (None, stuck) => {
                let end = text.len().min(stuck + 1);
                let wrong: String = text[at..end].iter().collect();
                issues.push(Issue::new(
                    at,
                    format!("Syntax error: token recognition error at: '{wrong}'"),
                ));
                text[at..end].fill('\0');
                at = stuck + 1;
            }
        }
    }
    tokens.push(LexToken {
        kind: TokenKind::Eof,
        at: text.len(),
        text: "<EOF>".into(),
    });
    (tokens, issues)
}

/// Escapes white space for messages.
pub(super) fn escape(text: &str) -> String {
    text.replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

/// The longest token, with `None` if it is skipped; and the position where no token could continue.
type Word = (Option<(Option<TokenKind>, usize)>, usize);

struct CelLexer<'a> {
    text: &'a [char],
    at: usize,
}

impl CelLexer<'_> {
    fn char(&self, at: usize) -> char {
        self.text.get(at).copied().unwrap_or('\0')
    }

    fn word(&self) -> Word {
        let (at, first) = (self.at, self.char(self.at));
        match first {
            ' ' | '\t' | '\r' | '\n' | '\u{c}' => {
                let end = self.run(at, |c| matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}'));
                (Some((None, end)), end)
            }
            '/' if self.char(at + 1) == '/' => {
                let end = self.run(at, |c| c != '\n');
                (Some((None, end)), end)
            }
            '0'..='9' => self.number(),
            '.' if self.char(at + 1).is_ascii_digit() => self.fraction(self.digits(at + 1)),
            '"' | '\'' => self.string(at, false, TokenKind::String),
            'a'..='z' | 'A'..='Z' | '_' => self.ident(),
            '`' => self.escaped_ident(),
            _ => self.operator(),
        }
    }

    /// The end of a run of characters.
    fn run(&self, at: usize, fits: impl Fn(char) -> bool) -> usize {
        self.text[at..]
            .iter()
            .position(|c| !fits(*c))
            .map_or(self.text.len(), |n| at + n)
    }

    fn digits(&self, at: usize) -> usize {
        self.run(at.min(self.text.len()), |c| c.is_ascii_digit())
    }

    fn number(&self) -> Word {
        let hex = self.run((self.at + 2).min(self.text.len()), |c| {
            c.is_ascii_hexdigit()
        });
        if self.char(self.at) == '0' && self.char(self.at + 1) == 'x' && hex > self.at + 2 {
            return self.unsigned(hex);
        }
        let whole = self.digits(self.at);
        if self.char(whole) == '.' && self.char(whole + 1).is_ascii_digit() {
            return self.fraction(self.digits(whole + 1));
        }
        match self.exponent(whole) {
            Some(end) => (Some((Some(TokenKind::Float), end)), end),
            None => self.unsigned(whole),
        }
    }

    fn unsigned(&self, end: usize) -> Word {
        match self.char(end) {
            'u' | 'U' => (Some((Some(TokenKind::Uint), end + 1)), end + 1),
            _ => (Some((Some(TokenKind::Int), end)), end),
        }
    }

    fn fraction(&self, end: usize) -> Word {
        let end = self.exponent(end).unwrap_or(end);
        (Some((Some(TokenKind::Float), end)), end)
    }

    fn exponent(&self, at: usize) -> Option<usize> {
        if !matches!(self.char(at), 'e' | 'E') {
            return None;
        }
        let digits = at + 1 + usize::from(matches!(self.char(at + 1), '+' | '-'));
        self.char(digits)
            .is_ascii_digit()
            .then(|| self.digits(digits))
    }

    fn ident(&self) -> Word {
        if let (Some(word), stuck) = self.prefixed_string() {
            return (Some(word), stuck);
        }
        let end = self.run(self.at, |c| c.is_ascii_alphanumeric() || c == '_');
        let text: String = self.text[self.at..end].iter().collect();
        let kind = match text.as_str() {
            "in" => TokenKind::In,
            "true" => TokenKind::True,
            "false" => TokenKind::False,
            "null" => TokenKind::Null,
            _ => TokenKind::Ident,
        };
        (Some((Some(kind), end)), end)
    }

    /// `r"raw"`, `b"bytes"`, `br"both"`.
    fn prefixed_string(&self) -> Word {
        let letter = |at: usize| self.char(at).to_ascii_lowercase();
        let bytes = letter(self.at) == 'b';
        let raw_at = self.at + usize::from(bytes);
        let raw = letter(raw_at) == 'r';
        let quote = raw_at + usize::from(raw);
        match self.char(quote) {
            '"' | '\'' => self.string(
                quote,
                raw,
                if bytes {
                    TokenKind::Bytes
                } else {
                    TokenKind::String
                },
            ),
            _ => (None, self.at),
        }
    }

    fn string(&self, open: usize, raw: bool, kind: TokenKind) -> Word {
        let quote = self.char(open);
        let thrice = self.char(open + 1) == quote && self.char(open + 2) == quote;
        let (end, stuck) = if thrice {
            self.long_text(open, raw)
        } else {
            self.short_text(open, raw)
        };
        match end {
            Some(end) => (Some((Some(kind), end)), end),
            // An unterminated triple-quoted string starts with an empty string.
            None if thrice => (Some((Some(kind), open + 2)), stuck),
            None => (None, stuck),
        }
    }

    fn short_text(&self, open: usize, raw: bool) -> (Option<usize>, usize) {
        let (quote, mut at) = (self.char(open), open + 1);
        while at < self.text.len() {
            at = match self.text[at] {
                c if c == quote => return (Some(at + 1), at + 1),
                '\n' | '\r' => return (None, at),
                '\\' if !raw => match self.escape(at) {
                    Ok(end) => end,
                    Err(stuck) => return (None, stuck),
                },
                _ => at + 1,
            };
        }
        (None, at)
    }

    fn long_text(&self, open: usize, raw: bool) -> (Option<usize>, usize) {
        let (quote, mut at) = (self.char(open), open + 3);
        while at < self.text.len() {
            if (0..3).all(|n| self.char(at + n) == quote) {
                return (Some(at + 3), at + 3);
            }
            at = match self.text[at] {
                '\\' if !raw => match self.escape(at) {
                    Ok(end) => end,
                    Err(stuck) => return (None, stuck),
                },
                _ => at + 1,
            };
        }
        (None, at)
    }

    /// The end of an escape sequence, or the position of its error.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let hex = |n: usize| {
            let end = self
                .run((at + 2).min(self.text.len()), |c| c.is_ascii_hexdigit())
                .min(at + 2 + n);
            if end == at + 2 + n { Ok(end) } else { Err(end) }
        };
        match self.char(at + 1) {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(at + 2),
            'x' | 'X' => hex(2),
            'u' => hex(4),
            'U' => hex(8),
            '0'..='3' => {
                let wrong = (at + 2..at + 4).find(|at| !matches!(self.char(*at), '0'..='7'));
                wrong.map_or(Ok(at + 4), Err)
            }
            _ => Err(at + 1),
        }
    }

    fn escaped_ident(&self) -> Word {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
        let end = self.run(self.at + 1, fits);
        if end > self.at + 1 && self.char(end) == '`' {
            return (Some((Some(TokenKind::EscapedIdent), end + 1)), end + 1);
        }
        (None, end)
    }

    fn operator(&self) -> Word {
        let pair = (self.char(self.at), self.char(self.at + 1));
        let two = match pair {
            ('=', '=') => Some(TokenKind::Equals),
            ('!', '=') => Some(TokenKind::NotEquals),
            ('<', '=') => Some(TokenKind::LessEquals),
            ('>', '=') => Some(TokenKind::GreaterEquals),
            ('&', '&') => Some(TokenKind::And),
            ('|', '|') => Some(TokenKind::Or),
            _ => None,
        };
        if two.is_some() {
            return (Some((two, self.at + 2)), self.at + 2);
        }
        let one = match pair.0 {
            '<' => TokenKind::Less,
            '>' => TokenKind::Greater,
            '[' => TokenKind::LeftBracket,
            ']' => TokenKind::RightBracket,
            '{' => TokenKind::LeftBrace,
            '}' => TokenKind::RightBrace,
            '(' => TokenKind::LeftParen,
            ')' => TokenKind::RightParen,
            '.' => TokenKind::Dot,
            ',' => TokenKind::Comma,
            '-' => TokenKind::Minus,
            '!' => TokenKind::Exclamation,
            '?' => TokenKind::Question,
            ':' => TokenKind::Colon,
            '+' => TokenKind::Plus,
            '*' => TokenKind::Star,
            '/' => TokenKind::Slash,
            '%' => TokenKind::Percent,
            // These start an operator of two characters, so the next character is the wrong one.
            '=' | '&' | '|' => return (None, self.at + 1),
            _ => return (None, self.at),
        };
        (Some((Some(one), self.at + 1)), self.at + 1)
    }
}
