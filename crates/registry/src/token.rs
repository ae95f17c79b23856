//! Continue tokens: the next key of a list and its revision.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use mizzen_value::{Value, json, value};

/// A continue token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// The revision of the first page; -1 for the latest.
    pub version: i64,
    /// The first key of the next page, relative to the prefix of the list.
    pub start: String,
    /// How many are left after the page that this token belongs to.
    pub left: Option<usize>,
}

/// As Go decodes: trailing bits are ignored.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true),
);

impl ContinueToken {
    /// The token of a page that ends with the key `last`.
    pub(crate) fn following(last: &str, version: i64, left: Option<usize>) -> ContinueToken {
        // Nothing sorts between a key and itself with a NUL.
        ContinueToken {
            version,
            start: format!("{last}\0"),
            left,
        }
    }

    /// A text after which the keys to send are: `start` is one of them, if there is such a key.
    pub(crate) fn after(&self) -> String {
        let mut chars = self.start.chars();
        match chars.next_back() {
            None | Some('\0') => chars.as_str().into(),
            // No name has the last of all characters: nothing is between that and `start`.
            Some(last) => {
                let before = char::from_u32(u32::from(last) - 1).unwrap_or('\u{d7ff}');
                format!("{}{before}\u{10ffff}", chars.as_str())
            }
        }
    }

    pub(crate) fn encode(&self) -> String {
        let start = self.start.as_str();
        let mut token = value!({ "v": "meta.k8s.io/v1", "rv": (self.version), "start": start });
        if let Some(left) = self.left {
            token.set("n", Value::Int(left as i64));
        }
        URL_SAFE_NO_PAD.encode(json::to_string(&token))
    }

    /// Parses a token, with upstream's error messages.
    pub(crate) fn decode(text: &str) -> Result<ContinueToken, String> {
        let refuse = |problem: String| format!("continue key is not valid: {problem}");
        let bytes = LENIENT
            .decode(text)
            .map_err(|error| refuse(base64_problem(error)))?;
        let token = json::parse(&bytes).map_err(|error| refuse(error.to_string()))?;
        check_types(&token).map_err(refuse)?;
        if token["v"].str() != "meta.k8s.io/v1" {
            let version = token["v"].str();
            return Err(refuse(format!(
                "server does not recognize this encoded version {version}"
            )));
        }
        let (version, start) = (token["rv"].int(), token["start"].str());
        if version == 0 {
            return Err(refuse(
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into(),
            ));
        }
        if start.is_empty() {
            return Err(refuse(
                "encoded start key empty (version meta.k8s.io/v1)".into(),
            ));
        }
        // A key that is not clean would leave the prefix of the list.
        let key = start.strip_prefix('/').unwrap_or(start);
        if key
            .trim_end_matches('\0')
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
        {
            return Err(refuse(start.to_string()));
        }
        let left = token["n"]
            .as_int()
            .and_then(|left| usize::try_from(left).ok());
        Ok(ContinueToken {
            version,
            start: key.into(),
            left,
        })
    }
}

/// Checks the JSON types as Go does.
fn check_types(token: &Value) -> Result<(), String> {
    let type_of = |field: &str| match field {
        "v" | "start" => Some("string"),
        "rv" => Some("int64"),
        _ => None,
    };
    match token {
        Value::Map(_) | Value::Null => {}
        other => {
            let word = other.go_word();
            return Err(format!(
                "json: cannot unmarshal {word} into Go value of type storage.continueToken"
            ));
        }
    }
    for (field, value) in token.entries() {
        let fits = matches!(
            (type_of(field), value),
            (None, _)
                | (_, Value::Null)
                | (Some("string"), Value::String(_))
                | (Some("int64"), Value::Int(_))
        );
        if let Some(go_type) = type_of(field).filter(|_| !fits) {
            let word = value.go_word();
            return Err(format!(
                "json: cannot unmarshal {word} into Go struct field continueToken.{field} of type {go_type}"
            ));
        }
    }
    Ok(())
}

fn base64_problem(error: base64::DecodeError) -> String {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            format!("illegal base64 data at input byte {at}")
        }
        base64::DecodeError::InvalidLength(len) => {
            format!("illegal base64 data at input byte {}", len / 4 * 4)
        }
        base64::DecodeError::InvalidPadding => "illegal base64 data at input byte 0".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was() {
        let token = ContinueToken::following("ns/name", 42, Some(7));
        assert_eq!(token.after(), "ns/name");
        assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        assert!(
            ContinueToken::decode("%%")
                .unwrap_err()
                .starts_with("continue key is not valid")
        );
    }

    #[test]
    fn a_token_of_another_make_is_refused_in_upstreams_words() {
        for (token, expected) in [
            (
                r#"{"v":"meta.k8s.io/v2","rv":1,"start":"a"}"#,
                "server does not recognize this encoded version meta.k8s.io/v2",
            ),
            (
                r#"{"rv":1,"start":"a"}"#,
                "server does not recognize this encoded version ",
            ),
            ("null", "server does not recognize this encoded version "),
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":5}"#,
                "encoded start key empty (version meta.k8s.io/v1)",
            ),
            (
                r#"{"v":"meta.k8s.io/v1","rv":"x"}"#,
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (
                "[]",
                "json: cannot unmarshal array into Go value of type storage.continueToken",
            ),
            ("xx", "invalid character 'x' looking for beginning of value"),
            (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#, "../x"),
        ] {
            let problem = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(token)).unwrap_err();
            assert_eq!(
                problem,
                format!("continue key is not valid: {expected}"),
                "{token}"
            );
        }
        let rooted = ContinueToken::decode(
            &URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/x"}"#),
        );
        assert_eq!(rooted.unwrap().start, "x");
    }

    #[test]
    fn a_start_without_a_nul_is_sent_too() {
        let after = |start: &str| {
            ContinueToken {
                version: 1,
                start: start.into(),
                left: None,
            }
            .after()
        };
        for (start, sent, not_sent) in [
            ("ns/b", "ns/b", "ns/a"),
            ("b\0", "b-", "b"),
            ("b", "b", "azzz"),
        ] {
            assert!(
                sent > after(start).as_str() && not_sent <= after(start).as_str(),
                "{start:?}"
            );
        }
    }
}
