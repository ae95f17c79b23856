//! Which words does the text of an expression consist of?
//!
//! Positions are counted in characters. What is no word is reported and skipped, in the manner of a lexer that
//! takes the longest word there is and blames the text up to where no word could go on.

use super::source::Issue;

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
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

impl Kind {
    /// Every kind, in the order of messages.
    pub(super) const ALL: [Kind; 36] = [
        Kind::Eof,
        Kind::Equals,
        Kind::NotEquals,
        Kind::In,
        Kind::Less,
        Kind::LessEquals,
        Kind::GreaterEquals,
        Kind::Greater,
        Kind::And,
        Kind::Or,
        Kind::LeftBracket,
        Kind::RightBracket,
        Kind::LeftBrace,
        Kind::RightBrace,
        Kind::LeftParen,
        Kind::RightParen,
        Kind::Dot,
        Kind::Comma,
        Kind::Minus,
        Kind::Exclamation,
        Kind::Question,
        Kind::Colon,
        Kind::Plus,
        Kind::Star,
        Kind::Slash,
        Kind::Percent,
        Kind::True,
        Kind::False,
        Kind::Null,
        Kind::Float,
        Kind::Int,
        Kind::Uint,
        Kind::String,
        Kind::Bytes,
        Kind::Ident,
        Kind::EscapedIdent,
    ];

    /// Its name in messages.
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

/// A word.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Where it begins.
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Every word, the last being the end; and what is none, which is blotted out in the text.
pub(super) fn lex(text: &mut [char]) -> (Vec<Token>, Vec<Issue>) {
    let (mut tokens, mut issues, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let scan = Scan { text, at };
        match scan.word() {
            (Some((kind, end)), _) => {
                if let Some(kind) = kind {
                    tokens.push(Token {
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
    tokens.push(Token {
        kind: Kind::Eof,
        at: text.len(),
        text: "<EOF>".into(),
    });
    (tokens, issues)
}

/// White space as it is shown in a message.
pub(super) fn escape(text: &str) -> String {
    text.replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

/// The longest word, `None` if it is to be skipped; and where no word could go on.
type Word = (Option<(Option<Kind>, usize)>, usize);

struct Scan<'a> {
    text: &'a [char],
    at: usize,
}

impl Scan<'_> {
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
            '"' | '\'' => self.string(at, false, Kind::String),
            'a'..='z' | 'A'..='Z' | '_' => self.ident(),
            '`' => self.escaped_ident(),
            _ => self.operator(),
        }
    }

    /// Where characters that `fits` accepts end.
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
            Some(end) => (Some((Some(Kind::Float), end)), end),
            None => self.unsigned(whole),
        }
    }

    fn unsigned(&self, end: usize) -> Word {
        match self.char(end) {
            'u' | 'U' => (Some((Some(Kind::Uint), end + 1)), end + 1),
            _ => (Some((Some(Kind::Int), end)), end),
        }
    }

    fn fraction(&self, end: usize) -> Word {
        let end = self.exponent(end).unwrap_or(end);
        (Some((Some(Kind::Float), end)), end)
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
            "in" => Kind::In,
            "true" => Kind::True,
            "false" => Kind::False,
            "null" => Kind::Null,
            _ => Kind::Ident,
        };
        (Some((Some(kind), end)), end)
    }

    /// `r"raw"`, `b"octets"`, `br"both"`.
    fn prefixed_string(&self) -> Word {
        let letter = |at: usize| self.char(at).to_ascii_lowercase();
        let bytes = letter(self.at) == 'b';
        let raw_at = self.at + usize::from(bytes);
        let raw = letter(raw_at) == 'r';
        let quote = raw_at + usize::from(raw);
        match self.char(quote) {
            '"' | '\'' => self.string(quote, raw, if bytes { Kind::Bytes } else { Kind::String }),
            _ => (None, self.at),
        }
    }

    fn string(&self, open: usize, raw: bool, kind: Kind) -> Word {
        let quote = self.char(open);
        let thrice = self.char(open + 1) == quote && self.char(open + 2) == quote;
        let (end, stuck) = if thrice {
            self.long_text(open, raw)
        } else {
            self.short_text(open, raw)
        };
        match end {
            Some(end) => (Some((Some(kind), end)), end),
            // An unfinished long text begins with an empty short one.
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

    /// Where an escape sequence ends, or where it goes wrong.
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
            return (Some((Some(Kind::EscapedIdent), end + 1)), end + 1);
        }
        (None, end)
    }

    fn operator(&self) -> Word {
        let pair = (self.char(self.at), self.char(self.at + 1));
        let two = match pair {
            ('=', '=') => Some(Kind::Equals),
            ('!', '=') => Some(Kind::NotEquals),
            ('<', '=') => Some(Kind::LessEquals),
            ('>', '=') => Some(Kind::GreaterEquals),
            ('&', '&') => Some(Kind::And),
            ('|', '|') => Some(Kind::Or),
            _ => None,
        };
        if two.is_some() {
            return (Some((two, self.at + 2)), self.at + 2);
        }
        let one = match pair.0 {
            '<' => Kind::Less,
            '>' => Kind::Greater,
            '[' => Kind::LeftBracket,
            ']' => Kind::RightBracket,
            '{' => Kind::LeftBrace,
            '}' => Kind::RightBrace,
            '(' => Kind::LeftParen,
            ')' => Kind::RightParen,
            '.' => Kind::Dot,
            ',' => Kind::Comma,
            '-' => Kind::Minus,
            '!' => Kind::Exclamation,
            '?' => Kind::Question,
            ':' => Kind::Colon,
            '+' => Kind::Plus,
            '*' => Kind::Star,
            '/' => Kind::Slash,
            '%' => Kind::Percent,
            // These begin a word, so the next character is the wrong one.
            '=' | '&' | '|' => return (None, self.at + 1),
            _ => return (None, self.at),
        };
        (Some((Some(one), self.at + 1)), self.at + 1)
    }
}
