//! What a response streams, over the WebSocket that its client asks for: logs as bytes, watches with a message per event.
//!
//! Kubernetes: `StreamObject` (endpoints/handlers/responsewriters/writers.go) and `HandleWS` (endpoints/handlers/watch.go).
//! Messages of the client are ignored.

use std::pin::{Pin, pin};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{
    CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use mizzen_transport::websocket::{
    MessageReader, NORMAL, WebSocketFrame, WebSocketPart, accept_key, write_frames,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::request::Request;
use crate::response::{self, Body, Response};

/// Subprotocols of byte streams: the bytes, or base64 of them as text. Kubernetes: wsstream/stream.go.
const BYTES: [&str; 3] = ["", "binary.k8s.io", BASE64];
const BASE64: &str = "base64.binary.k8s.io";
/// How many messages wait for the connection.
const QUEUE: usize = 16;
/// The largest message of a client, which is ignored. Kubernetes: golang.org/x/net, `DefaultMaxPayloadBytes`.
const MAX_MESSAGE: usize = 32 << 20;
/// How long closing the connection may take.
const LINGER: Duration = Duration::from_secs(10);

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMessages {
    /// Some bytes, after an empty message that tells that the stream has begun.
    Bytes,
    /// An event in JSON, which ends in a line feed, as text.
    Lines,
    /// An event in protobuf, without the length that is before it in the body of a response.
    LengthPrefixed,
}

/// Sends the body of a successful response over a WebSocket, if the client asks for one.
pub fn upgraded(request: &Request, response: Response, messages: StreamMessages) -> Response {
    if !is_requested(&request.headers) || !response.status().is_success() {
        return response;
    }
    let (accepted, is_base64) = match handshake(&request.method, &request.headers, messages) {
        Ok(accepted) => accepted,
        Err(rejected) => return *rejected,
    };
    let streams = request.streams.take();
    let Some(connection) = streams.and_then(|streams| streams.upgrade) else {
        let why = "request connection cannot be hijacked";
        return response::text(500, why);
    };
    let record = request.record.clone();
    tokio::spawn(async move {
        serve(connection, response.into_body(), messages, is_base64).await;
        drop(record);
    });
    accepted
}

/// Kubernetes: `IsWebSocketRequest` (httpstream/wsstream/conn.go).
fn is_requested(headers: &HeaderMap) -> bool {
    let is_upgrade = header_text(headers, CONNECTION)
        .split(',')
        .any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    is_upgrade && header_text(headers, UPGRADE).eq_ignore_ascii_case("websocket")
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> &str {
    let found = headers.get(name);
    found
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// The response to the handshake, and whether bytes are sent as base64. The rules and messages are those of
/// golang.org/x/net/websocket.
fn handshake(
    method: &Method,
    headers: &HeaderMap,
    messages: StreamMessages,
) -> Result<(Response, bool), Box<Response>> {
    let rejected = |code, why: &str| Box::new(response::text(code, why.to_owned()));
    if method != Method::GET {
        return Err(rejected(405, "bad method"));
    }
    let key = header_text(headers, SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(rejected(400, "mismatch challenge/response"));
    }
    if header_text(headers, SEC_WEBSOCKET_VERSION) != "13" {
        let mut rejected = rejected(400, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static("13");
        rejected
            .headers_mut()
            .insert(SEC_WEBSOCKET_VERSION, version);
        return Err(rejected);
    }
    let offered = header_text(headers, SEC_WEBSOCKET_PROTOCOL).split(',');
    let offered: Vec<&str> = offered
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    let chosen = match (messages, offered.as_slice()) {
        (StreamMessages::Bytes, []) => "",
        (StreamMessages::Bytes, offered) => {
            let known = offered.iter().find(|name| BYTES.contains(name));
            known.ok_or_else(|| rejected(403, ""))?
        }
        // Upstream rejects a watch without an origin.
        _ if !headers.contains_key(ORIGIN) => return Err(rejected(403, "")),
        (_, []) => "",
        (_, [one]) => one,
        _ => return Err(rejected(400, "")),
    };
    let mut accepted = Response::new(Body::from(""));
    *accepted.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let head = accepted.headers_mut();
    head.insert(UPGRADE, HeaderValue::from_static("websocket"));
    head.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let proof = HeaderValue::from_str(&accept_key(key)).expect("base64 can stand in a header");
    head.insert(SEC_WEBSOCKET_ACCEPT, proof);
    if !chosen.is_empty() {
        let chosen = HeaderValue::from_str(chosen).expect("it was in a header");
        head.insert(SEC_WEBSOCKET_PROTOCOL, chosen);
    }
    Ok((accepted, chosen == BASE64))
}

/// Sends messages until the body or the connection ends.
async fn serve(connection: OnUpgrade, body: Body, messages: StreamMessages, is_base64: bool) {
    let Ok(connection) = connection.await else {
        return;
    };
    let (read, write) = tokio::io::split(TokioIo::new(connection));
    let (frames, queue) = mpsc::channel(QUEUE);
    let mut writer = pin!(write_frames(write, queue, || ()));
    let pongs = frames.clone();
    let session = async move {
        tokio::select! {
            () = send_body(Box::pin(body), messages, is_base64, &frames) => {}
            () = ignore_messages(MessageReader::new(read, MAX_MESSAGE), &pongs) => {}
        }
        // It fails if the connection is lost.
        let _ = frames.send(WebSocketFrame::Close(NORMAL)).await;
    };
    tokio::select! {
        // A write has failed.
        _ = &mut writer => return,
        () = session => {}
    }
    let _ = timeout(LINGER, writer).await;
}

/// Answers pings until the client closes the connection.
async fn ignore_messages(
    mut reader: MessageReader<impl tokio::io::AsyncRead + Unpin>,
    pongs: &mpsc::Sender<WebSocketFrame>,
) {
    loop {
        match reader.next(|| ()).await {
            Ok(WebSocketPart::Data { .. }) => {}
            Ok(WebSocketPart::Ping(data)) => {
                let _ = pongs.send(WebSocketFrame::Pong(data)).await;
            }
            Ok(WebSocketPart::Close) | Err(_) => return,
        }
    }
}

/// Sends what a body streams, until it ends or the connection is closed.
async fn send_body(
    mut body: Pin<Box<Body>>,
    messages: StreamMessages,
    is_base64: bool,
    frames: &mpsc::Sender<WebSocketFrame>,
) {
    let message = |data: Bytes| match (messages, is_base64) {
        (StreamMessages::Bytes, true) => WebSocketFrame::Text(STANDARD.encode(data).into()),
        (StreamMessages::Lines, _) => WebSocketFrame::Text(data),
        _ => WebSocketFrame::Binary(data),
    };
    if messages == StreamMessages::Bytes && frames.send(message(Bytes::new())).await.is_err() {
        return;
    }
    let mut unsent = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        unsent.extend_from_slice(&data);
        while let Some(data) = messages.next(&mut unsent) {
            if frames.send(message(data)).await.is_err() {
                return;
            }
        }
    }
}

impl StreamMessages {
    /// Takes the next whole message.
    fn next(self, unsent: &mut BytesMut) -> Option<Bytes> {
        let length = match self {
            StreamMessages::Bytes => unsent.len(),
            StreamMessages::Lines => 1 + unsent.iter().position(|byte| *byte == b'\n')?,
            StreamMessages::LengthPrefixed => {
                let length = u32::from_be_bytes(*unsent.first_chunk()?);
                let length = usize::try_from(length).ok()?;
                if unsent.len() - size_of::<u32>() < length {
                    return None;
                }
                unsent.advance(size_of::<u32>());
                return Some(unsent.split_to(length).freeze());
            }
        };
        (length > 0).then(|| unsent.split_to(length).freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(more: &[(&'static str, &'static str)]) -> HeaderMap {
        let known = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in known.iter().chain(more) {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[track_caller]
    fn check(messages: StreamMessages, more: &[(&'static str, &'static str)], expected: &str) {
        let headers = requested(more);
        assert!(is_requested(&headers));
        let shown = match handshake(&Method::GET, &headers, messages) {
            Ok((accepted, is_base64)) => {
                let protocol = header_text(accepted.headers(), SEC_WEBSOCKET_PROTOCOL);
                format!("{} {protocol} {is_base64}", accepted.status().as_u16())
            }
            Err(rejected) => rejected.status().as_u16().to_string(),
        };
        assert_eq!(shown, expected, "{more:?}");
    }

    #[test]
    fn a_handshake_names_a_subprotocol_that_the_stream_has() {
        use StreamMessages::{Bytes, Lines};
        let protocol = "sec-websocket-protocol";
        check(Bytes, &[], "101  false");
        check(
            Bytes,
            &[(protocol, "x, binary.k8s.io")],
            "101 binary.k8s.io false",
        );
        check(
            Bytes,
            &[(protocol, BASE64)],
            "101 base64.binary.k8s.io true",
        );
        check(Bytes, &[(protocol, "channel.k8s.io")], "403");
        check(Bytes, &[("sec-websocket-version", "8")], "400");
        check(Bytes, &[("sec-websocket-key", "")], "400");
        check(Lines, &[], "403");
        let origin = ("origin", "http://localhost");
        check(Lines, &[origin], "101  false");
        check(Lines, &[origin, (protocol, "any")], "101 any false");
        check(Lines, &[origin, (protocol, "one, two")], "400");
        let post = handshake(&Method::POST, &requested(&[]), Bytes);
        assert_eq!(post.err().unwrap().status(), 405);
        assert!(!is_requested(&HeaderMap::new()));
    }

    #[test]
    fn a_message_is_an_event_however_the_body_is_cut() {
        let mut unsent = BytesMut::from("{}\n{\"a\":1}\n{");
        assert_eq!(StreamMessages::Lines.next(&mut unsent).unwrap(), "{}\n");
        assert_eq!(
            StreamMessages::Lines.next(&mut unsent).unwrap(),
            "{\"a\":1}\n"
        );
        assert_eq!(StreamMessages::Lines.next(&mut unsent), None);
        let mut unsent = BytesMut::from(&b"\0\0\0\x02ab\0\0\0"[..]);
        let messages = StreamMessages::LengthPrefixed;
        assert_eq!(messages.next(&mut unsent).unwrap(), "ab");
        assert_eq!(messages.next(&mut unsent), None);
        unsent.extend_from_slice(b"\x01");
        assert_eq!(messages.next(&mut unsent), None);
        unsent.extend_from_slice(b"c");
        assert_eq!(messages.next(&mut unsent).unwrap(), "c");
    }
}
