//! Rust source as tokens: enough of the language to find look-ups, and nothing inside comments and texts.

/// A token, and the line on which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// A name or keyword.
    Word(String),
    /// A text in plain quotes, as it is written.
    Text(String),
    /// A number.
    Number,
    /// A raw text, a character, or a lifetime.
    Other,
    /// Anything else, one character at a time.
    Mark(char),
}

/// The tokens of a source.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = next(rest, first);
        let (taken, left) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { kind, line });
        }
        line += taken.matches('\n').count();
        rest = left;
    }
    tokens
}

/// How long the next token is, and what it is; none for space and comments.
fn next(rest: &str, first: char) -> (usize, Option<Kind>) {
    let until = |end: &str, from: usize| {
        let found = rest[from..].find(end);
        found.map_or(rest.len(), |found| from + found + end.len())
    };
    if first.is_whitespace() {
        return (first.len_utf8(), None);
    }
    if rest.starts_with("//") {
        return (until("\n", 0), None);
    }
    if rest.starts_with("/*") {
        return (until("*/", 2), None);
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = rest.len() - raw.len() + hashes + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            return (until(&end, start), Some(Kind::Other));
        }
    }
    if first == '"' {
        let length = text_length(rest);
        let text = rest[1..length].trim_end_matches('"').to_owned();
        return (length, Some(Kind::Text(text)));
    }
    if first == '\'' {
        return (quote_length(rest), Some(Kind::Other));
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if is_word(first) {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let kind = match first.is_ascii_digit() {
            true => Kind::Number,
            false => Kind::Word(rest[..length].to_owned()),
        };
        return (length, Some(kind));
    }
    (first.len_utf8(), Some(Kind::Mark(first)))
}

/// The length of a text with its quotes.
fn text_length(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character with its quotes, or of a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |end| end + 4),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            Some((at, _)) => {
                let end = rest[at..].find(|c: char| !c.is_alphanumeric() && c != '_');
                end.map_or(rest.len(), |end| at + end)
            }
            None => rest.len(),
        },
        None => rest.len(),
    }
}
