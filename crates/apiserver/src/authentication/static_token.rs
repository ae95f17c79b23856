//! Tokens that an administrator has written down, with those whom they belong to.
//!
//! A line has a token, a user and their uid, and perhaps groups: `secret,jane,7,"dev,ops"`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_value::Str;

use super::secret::digest;

/// Users by the digests of their tokens; the tokens themselves are not kept. Cheap to clone.
#[derive(Clone, Default)]
pub struct StaticTokens(Arc<HashMap<[u8; 32], User>>);

/// What is wrong with a file of tokens.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TokenFileError {
    /// A line says too little.
    #[error("line {line} must have at least 3 columns (token, user name, user uid), found {found}")]
    TooFewColumns {
        /// The line.
        line: usize,
        /// How many it has.
        found: usize,
    },
    /// A quote has no end, or stands where none may be.
    #[error("line {line} has a stray quote")]
    StrayQuote {
        /// The line.
        line: usize,
    },
}

/// A record of a file of tokens that does not do what one may think.
#[derive(Debug, PartialEq)]
pub struct TokenFileWarning {
    /// What its token is: `empty`, so that nobody can show it, or `duplicate`, so that it is an earlier one's no more.
    pub what: &'static str,
    /// Which record, counted from one.
    pub record: usize,
}

impl StaticTokens {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<StaticTokens, TokenFileError> {
        StaticTokens::parse_with_warnings(text, |_| {})
    }

    /// The same; `warn` is told what is odd, though it is no error.
    pub fn parse_with_warnings(
        text: &str,
        mut warn: impl FnMut(TokenFileWarning),
    ) -> Result<StaticTokens, TokenFileError> {
        let (mut tokens, mut record) = (HashMap::new(), 0);
        for (at, text) in text
            .lines()
            .enumerate()
            .filter(|(_, text)| !text.trim().is_empty())
        {
            let line = at + 1;
            let columns = parse_csv_line(text).ok_or(TokenFileError::StrayQuote { line })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(TokenFileError::TooFewColumns {
                    line,
                    found: columns.len(),
                });
            };
            let groups = rest
                .first()
                .map(|groups| groups.split(',').map(Str::from).collect());
            let user = User {
                name: name.into(),
                uid: uid.into(),
                groups: groups.unwrap_or_default(),
                ..User::default()
            };
            record += 1;
            if token.is_empty() {
                warn(TokenFileWarning {
                    what: "empty",
                    record,
                });
            } else if tokens.insert(digest(token), user).is_some() {
                warn(TokenFileWarning {
                    what: "duplicate",
                    record,
                });
            }
        }
        Ok(StaticTokens(Arc::new(tokens)))
    }

    pub(super) fn find(&self, token: &str) -> Option<User> {
        self.0.get(&digest(token)).cloned()
    }
}

/// The columns of a line of CSV; a column in quotes may have commas, and a doubled quote is one.
fn parse_csv_line(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let (column, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_column(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        columns.push(column);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(columns),
        }
    }
}

fn quoted_column(text: &str) -> Option<(String, &str)> {
    let (mut column, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('"')?;
        column.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                column.push('"');
                rest = next;
            }
            None => return Some((column, rest)),
        }
    }
}

/// Tokens are nobody's business, least of all a log's.
impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "StaticTokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_and_its_user() {
        let tokens = StaticTokens::parse("s1,jane,7\n\ns2,joe,8,\"dev,ops\"\n,nobody,9\n").unwrap();
        assert_eq!(tokens.find("s1").unwrap().name, "jane");
        let joe = tokens.find("s2").unwrap();
        assert_eq!(
            (joe.uid.as_str(), joe.groups.as_slice()),
            ("8", ["dev".into(), "ops".into()].as_slice())
        );
        assert_eq!(tokens.find(""), None);
        assert_eq!(tokens.find("s3"), None);
    }

    #[test]
    fn what_is_odd_is_told() {
        let mut told = Vec::new();
        let text = "a,jane,7\n\n,nobody,8\na,joe,9\n";
        let tokens = StaticTokens::parse_with_warnings(text, |oddity| told.push(oddity)).unwrap();
        assert_eq!(
            told,
            [
                TokenFileWarning {
                    what: "empty",
                    record: 2
                },
                TokenFileWarning {
                    what: "duplicate",
                    record: 3
                }
            ]
        );
        assert_eq!(tokens.find("a").unwrap().name, "joe");
    }

    #[test]
    fn a_broken_line_is_named() {
        let problem = |text: &str| StaticTokens::parse(text).unwrap_err();
        assert_eq!(
            problem("a,b,c\nx,y"),
            TokenFileError::TooFewColumns { line: 2, found: 2 }
        );
        assert_eq!(problem("a,b,c,\"d"), TokenFileError::StrayQuote { line: 1 });
        assert_eq!(
            problem("a,b,c,\"d\"e"),
            TokenFileError::StrayQuote { line: 1 }
        );
    }
}
