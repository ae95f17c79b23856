//! Bearer tokens of WebSocket clients. Browsers cannot set the Authorization header, so the token
//! is sent as a subprotocol (request/websocket/protocol.go).

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue};

use mizzen_request::header::{text, texts};

/// The prefix of a subprotocol that is a token.
const TOKEN: &str = "base64url.bearer.authorization.k8s.io.";

/// Kubernetes: trailing bits may have any value, as in Go.
const ENCODING: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// A token, and the other subprotocols.
pub(super) struct ProtocolToken {
    pub token: String,
    other_protocols: HeaderValue,
}

impl ProtocolToken {
    /// The token of a WebSocket request, if it has one. The error says why it is invalid.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Option<ProtocolToken>, &'static str> {
        let upgrades = |text: &str| text.to_ascii_lowercase().contains("upgrade");
        let is_websocket = text(headers, UPGRADE).eq_ignore_ascii_case("websocket")
            && texts(headers, CONNECTION)
                .iter()
                .any(|connection| upgrades(connection));
        if !is_websocket {
            return Ok(None);
        }
        let said = texts(headers, SEC_WEBSOCKET_PROTOCOL);
        let protocols = said.iter().flat_map(|text| text.split(',')).map(str::trim);
        let (tokens, others): (Vec<&str>, Vec<&str>) =
            protocols.partition(|it| it.starts_with(TOKEN));
        let token = match tokens[..] {
            [] => return Ok(None),
            [token] => decode(&token[TOKEN.len()..])?,
            _ => return Err("multiple base64.bearer.authorization tokens specified"),
        };
        match HeaderValue::from_str(&others.join(",")) {
            _ if token.is_empty() => Ok(None),
            // The response must name a subprotocol, which must not be the token.
            Ok(joined) if !others.is_empty() => Ok(Some(ProtocolToken {
                token,
                other_protocols: joined,
            })),
            _ => Err("missing additional subprotocol"),
        }
    }

    /// Removes the token from the headers, so that it is not forwarded.
    pub(super) fn remove_from(self, headers: &mut HeaderMap) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, self.other_protocols);
    }
}

fn decode(token: &str) -> Result<String, &'static str> {
    let bytes = ENCODING
        .decode(token)
        .map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(protocols: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        for protocol in protocols {
            headers.append(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        }
        headers
    }

    #[track_caller]
    fn check(protocols: &[&str], expected: Result<Option<(&str, &str)>, &str>) {
        let mut headers = asking(protocols);
        let shown = ProtocolToken::from_headers(&headers).map(|shown| {
            shown.map(|shown| {
                let token = shown.token.clone();
                shown.remove_from(&mut headers);
                (token, text(&headers, SEC_WEBSOCKET_PROTOCOL).into_owned())
            })
        });
        let expected = expected.map(|shown| shown.map(|(token, left)| (token.into(), left.into())));
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_token_subprotocol_is_read_and_removed() {
        let token = format!("{TOKEN}c2VjcmV0");
        check(&[], Ok(None));
        check(&["v4.channel.k8s.io"], Ok(None));
        check(&[TOKEN, "a"], Ok(None));
        check(
            &[&format!("{token}, v4.channel.k8s.io")],
            Ok(Some(("secret", "v4.channel.k8s.io"))),
        );
        check(&["a", &token, "b, c"], Ok(Some(("secret", "a,b,c"))));
        check(&[&format!("{token},")], Ok(Some(("secret", ""))));
        check(&[&token], Err("missing additional subprotocol"));
        check(
            &[&token, &token, "a"],
            Err("multiple base64.bearer.authorization tokens specified"),
        );
        let encoding = "invalid base64.bearer.authorization token encoding";
        check(&[&format!("{TOKEN}c2Vj="), "a"], Err(encoding));
        check(&[&format!("{TOKEN}%"), "a"], Err(encoding));
        check(
            &[&format!("{TOKEN}_w"), "a"],
            Err("invalid base64.bearer.authorization token"),
        );
    }

    #[test]
    fn a_token_subprotocol_is_only_for_websockets() {
        for header in [UPGRADE, CONNECTION] {
            let mut headers = asking(&[&format!("{TOKEN}c2VjcmV0"), "a"]);
            headers.insert(header, HeaderValue::from_static("h2c"));
            assert!(matches!(ProtocolToken::from_headers(&headers), Ok(None)));
        }
    }
}
