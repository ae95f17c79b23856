//! The decoded query of a request.

/// Names and values, in order.
pub(super) struct StreamQuery(Vec<(String, String)>);

impl StreamQuery {
    pub(super) fn parse(query: &str) -> StreamQuery {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        StreamQuery(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name), decode(value))
                })
                .collect(),
        )
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set. Kubernetes: only by `1`.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.all(name).next() == Some("1")
    }
}

/// Decodes `+` and percent-encoding; invalid codes stay as they are.
fn decode(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        let code = more
            .get(..2)
            .and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        let (byte, length) = match (first, code) {
            (b'%', Some(byte)) => (byte, 3),
            (b'+', _) => (b' ', 1),
            (other, _) => (*other, 1),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_decoded_word_by_word() {
        let query = StreamQuery::parse(
            "command=sh&command=-c&command=echo+%24A%3B+%C3%BC%+%zz&output=1&tty=true&input",
        );
        assert_eq!(
            query.all("command").collect::<Vec<_>>(),
            ["sh", "-c", "echo $A; ü% %zz"]
        );
        assert!(query.is_set("output") && !query.is_set("tty") && !query.is_set("input"));
    }
}
