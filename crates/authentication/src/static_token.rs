//! The static token file.
//!
//! Each line is CSV of a token, user name, uid, and optionally groups: `secret,jane,7,"dev,ops"`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_value::Str;

use super::secret::digest;

/// Users by the digests of their tokens. Tokens are not kept. Cheap to clone.
#[derive(Clone, Default)]
pub struct StaticTokens(Arc<HashMap<[u8; 32], User>>);

/// Why a token file is invalid.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TokenFileError {
    /// A line has fewer than three columns.
    #[error("line {line} must have at least 3 columns (token, user name, user uid), found {found}")]
    TooFewColumns {
        /// The line, counted from one.
        line: usize,
        /// Its number of columns.
        found: usize,
    },
    /// A quote is unterminated or misplaced.
    #[error("line {line} has a stray quote")]
    StrayQuote {
        /// The line, counted from one.
        line: usize,
    },
}

/// A record that is probably a mistake, though it is no error.
#[derive(Debug, PartialEq)]
pub struct TokenFileWarning {
    /// What its token is: `empty`, which is ignored, or `duplicate`, which replaces the earlier
    /// record.
    pub what: &'static str,
    /// The record, counted from one.
    pub record: usize,
}

impl StaticTokens {
    /// Parses a token file.
    pub fn parse(text: &str) -> Result<StaticTokens, TokenFileError> {
        StaticTokens::parse_with_warnings(text, |_| {})
    }

    /// Parses a file and calls `warn` for each record that is probably a mistake.
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

/// The columns of a CSV line. A quoted column may contain commas; a doubled quote is one.
fn parse_csv_line(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let mut column = String::new();
        let after = match rest.strip_prefix('"') {
            Some(mut quoted) => loop {
                let end = quoted.find('"')?;
                column.push_str(&quoted[..end]);
                quoted = &quoted[end + 1..];
                let Some(next) = quoted.strip_prefix('"') else {
                    break quoted;
                };
                column.push('"');
                quoted = next;
            },
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                column.push_str(&rest[..end]);
                &rest[end..]
            }
        };
        columns.push(column);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(columns),
        }
    }
}

/// Shows no tokens.
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
    fn empty_and_duplicate_tokens_are_reported() {
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
    fn the_error_names_an_invalid_line() {
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
