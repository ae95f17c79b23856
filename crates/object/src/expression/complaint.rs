//! What Go says of text that is no regular expression: the first thing that its parser stumbles over.

/// The complaint about an expression that Go would not compile, as far as it is known here.
pub(super) fn of(text: &str) -> Option<String> {
    let mut parser = Parser { text, rest: text, depth: 0, repeatable: false };
    parser.run().err()
}

/// The length of `{2}`, `{2,}` or `{2,3}` at the beginning of a text, if there is one.
pub(super) fn count(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let mut numbers = text[1..end].split(',');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let valid = numbers.next().is_some_and(is_number)
        && numbers.next().is_none_or(|text| text.is_empty() || is_number(text))
        && numbers.next().is_none();
    valid.then_some(end + 1)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    /// How many parentheses are open.
    depth: usize,
    /// Whether there is something that can be repeated.
    repeatable: bool,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(char) = self.rest.chars().next() {
            match char {
                '(' if self.rest.starts_with("(?") => self.group()?,
                '(' => self.open(1),
                ')' => self.close()?,
                '|' | '^' | '$' => self.advance(char.len_utf8(), char != '|'),
                '[' => self.class()?,
                '\\' => self.escape()?,
                '*' | '+' | '?' => self.repeat(1)?,
                '{' => match count(self.rest) {
                    Some(length) => self.counted(length)?,
                    None => self.advance(1, true),
                },
                _ => self.advance(char.len_utf8(), true),
            }
        }
        match self.depth {
            0 => Ok(()),
            _ => Err(format!("missing closing ): `{}`", self.text)),
        }
    }

    fn advance(&mut self, length: usize, repeatable: bool) {
        self.rest = &self.rest[length..];
        self.repeatable = repeatable;
    }

    fn open(&mut self, length: usize) {
        self.depth += 1;
        self.advance(length, false);
    }

    fn close(&mut self) -> Result<(), String> {
        if self.depth == 0 {
            return Err(format!("unexpected ): `{}`", self.text));
        }
        self.depth -= 1;
        self.advance(1, true);
        Ok(())
    }

    /// `(?:`, `(?i)`, `(?P<name>`; nothing else of Perl's is known.
    fn group(&mut self) -> Result<(), String> {
        let after = &self.rest[2..];
        if let Some(named) = after.strip_prefix("P<").or_else(|| after.strip_prefix('<'))
            && !named.starts_with(['=', '!'])
        {
            let Some(end) = named.find('>') else {
                return Err(format!("invalid named capture: `{}`", self.rest));
            };
            self.open(self.rest.len() - named.len() + end + 1);
            return Ok(());
        }
        let end = after.find(|char: char| !"imsU-".contains(char)).unwrap_or(after.len());
        match after[end..].chars().next() {
            Some(':') => self.open(end + 3),
            Some(')') if end > 0 => self.advance(end + 3, false),
            Some(odd) => {
                let shown = &self.rest[..2 + end + odd.len_utf8()];
                return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
            }
            None => return Err(format!("invalid or unsupported Perl syntax: `{}`", self.rest)),
        }
        Ok(())
    }

    fn repeat(&mut self, length: usize) -> Result<(), String> {
        let lazy = usize::from(self.rest[length..].starts_with('?'));
        let operator = &self.rest[..length + lazy];
        if !self.repeatable {
            return Err(format!("missing argument to repetition operator: `{operator}`"));
        }
        let after = &self.rest[operator.len()..];
        let next = match after.chars().next() {
            Some('*' | '+' | '?') => 1,
            Some('{') => count(after).unwrap_or_default(),
            _ => 0,
        };
        if next > 0 {
            let next = next + usize::from(after[next..].starts_with('?'));
            return Err(format!("invalid nested repetition operator: `{operator}{}`", &after[..next]));
        }
        self.advance(operator.len(), true);
        Ok(())
    }

    fn counted(&mut self, length: usize) -> Result<(), String> {
        let text = &self.rest[..length];
        let mut bounds = text[1..length - 1].split(',').map(|bound| bound.parse::<u32>().unwrap_or(u32::MAX));
        let low = bounds.next().unwrap_or_default();
        let high = if text.ends_with(",}") { low } else { bounds.next().unwrap_or(low) };
        if low > 1000 || high > 1000 || high < low {
            return Err(format!("invalid repeat count: `{text}`"));
        }
        self.repeat(length)
    }

    fn class(&mut self) -> Result<(), String> {
        let whole = self.rest;
        let missing = || format!("missing closing ]: `{whole}`");
        let mut rest = whole[1..].strip_prefix('^').unwrap_or(&whole[1..]);
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if let Some(named) = rest.strip_prefix("[:")
                && let Some(end) = named.find(":]")
            {
                let shown = &rest[..end + 4];
                if !NAMED.contains(&named[..end].trim_start_matches('^')) {
                    return Err(format!("invalid character class range: `{shown}`"));
                }
                rest = &rest[shown.len()..];
                continue;
            }
            let (low, after) = single(rest).ok_or_else(missing)?;
            let range = after.strip_prefix('-').filter(|after| !after.is_empty() && !after.starts_with(']'));
            let Some(after_dash) = range else {
                rest = after;
                continue;
            };
            let (high, after) = single(after_dash).ok_or_else(missing)?;
            if high < low {
                let shown = &rest[..rest.len() - after.len()];
                return Err(format!("invalid character class range: `{shown}`"));
            }
            rest = after;
        }
        self.advance(whole.len() - rest.len() + 1, true);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(char) = self.rest[1..].chars().next() else {
            return Err("trailing backslash at end of expression: ``".into());
        };
        let known = "AbBCdDsSwWzQEpPxafnrtv01234567".contains(char) || !char.is_ascii_alphanumeric();
        if !known || !char.is_ascii() {
            return Err(format!("invalid escape sequence: `\\{char}`"));
        }
        if matches!(char, 'p' | 'P') {
            return self.property();
        }
        self.advance(1 + char.len_utf8(), true);
        Ok(())
    }

    /// `\\pL`, `\\p{Greek}`: classes of Unicode.
    fn property(&mut self) -> Result<(), String> {
        let after = &self.rest[2..];
        let length = match after.chars().next() {
            Some('{') => after.find('}').map(|end| end + 1),
            first => first.map(char::len_utf8),
        };
        let shown = &self.rest[..2 + length.unwrap_or(after.len())];
        if length.is_none() || regex::Regex::new(shown).is_err() {
            return Err(format!("invalid character class range: `{shown}`"));
        }
        self.advance(shown.len(), true);
        Ok(())
    }
}

/// The classes that have a name.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// The first character of the inside of a class, or of an escape in it.
fn single(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    let first = match chars.next()? {
        '\\' => chars.next()?,
        char => char,
    };
    Some((first, chars.as_str()))
}
