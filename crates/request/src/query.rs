//! The query of a request, as Go reads it.

use http::Uri;
use mizzen_value::percent::decode;

/// The query parameters of a request.
#[derive(Debug, Clone, Default)]
pub struct RequestQuery(Vec<(String, String)>);

/// Go: a query with more pairs than this is ignored (net/url, CVE-2025-61726).
const MAX_PAIRS: usize = 10_000;

impl RequestQuery {
    /// The query of a URI.
    pub fn parse(uri: &Uri) -> RequestQuery {
        let query = uri.query().unwrap_or_default();
        if query.bytes().filter(|byte| *byte == b'&').count() >= MAX_PAIRS {
            return RequestQuery::default();
        }
        // Go: pairs with an invalid escape or a semicolon are ignored.
        let is_escape =
            |text: &str| text.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        let is_valid = |pair: &str| {
            !pair.is_empty() && !pair.contains(';') && pair.split('%').skip(1).all(is_escape)
        };
        let pairs = query.split('&').filter(|pair| is_valid(pair));
        RequestQuery(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (
                        decode(&key.replace('+', " ")).into_owned(),
                        decode(&value.replace('+', " ")).into_owned(),
                    )
                })
                .collect(),
        )
    }

    /// The first value of `key`, even if it is empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|pair| pair.0 == key)
            .map(|pair| pair.1.as_str())
    }

    /// The first value of `key`, `""` if there is none.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// All values of `key`.
    pub fn all(&self, key: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|pair| pair.0 == key)
            .map(|pair| pair.1.as_str())
            .collect()
    }

    /// A boolean. Kubernetes: every value is true except "false" and "0".
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.get(key)
            .map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// An integer; the error is Go's.
    pub fn int(&self, key: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if numeric {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let error = || {
            format!(
                "strconv.ParseInt: parsing {}: {problem}",
                mizzen_value::json::quote(text)
            )
        };
        if !numeric {
            return Err(error());
        }
        text.parse().map(Some).map_err(|_| error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pairs_of_a_query_are_ignored() {
        let query = RequestQuery::parse(&"/?a=%zz&b=%4&c=%é&d=1;e=2&%z=1&f=%41".parse().unwrap());
        assert_eq!(query.0, [("f".to_string(), "A".to_string())]);
    }

    #[test]
    fn query_values_are_decoded() {
        let query = RequestQuery::parse(&"/?a=x%2Cy+z&watch&n=5&bad=x&f=FALSE".parse().unwrap());
        assert_eq!(query.text("a"), "x,y z");
        assert_eq!(
            (query.bool("watch"), query.bool("f"), query.bool("none")),
            (Some(true), Some(false), None)
        );
        assert_eq!(query.int("n"), Ok(Some(5)));
        assert_eq!(
            query.int("bad"),
            Err("strconv.ParseInt: parsing \"x\": invalid syntax".into())
        );
    }
}
