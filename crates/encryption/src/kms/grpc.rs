//! One gRPC call with one message each way, over HTTP/2 on a Unix socket.
//!
//! A plug-in may start after us and may be restarted: a call waits until somebody answers, but never longer than the
//! plug-in's time-out.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mizzen_object::proto::ProtoError;
use mizzen_value::percent;
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The largest answer: a seed with its annotations is far smaller.
const MAX_ANSWER: usize = 1 << 20;
/// How long to wait before a socket on which nobody answers is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// What stands before a message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// Where calls go. They share one connection.
pub(super) struct Channel {
    socket: String,
    timeout: Duration,
    connection: Mutex<Option<Sender>>,
}

type Sender = SendRequest<Full<Bytes>>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Nobody answered in time; `why` is what happened last.
    #[error("rpc error: code = DeadlineExceeded desc = {why}")]
    Late { why: String },
    /// The plug-in refused.
    #[error("rpc error: code = {} desc = {message}", code_name(*code))]
    Refused { code: usize, message: String },
    /// The answer is none.
    #[error("rpc error: code = Internal desc = {0}")]
    Malformed(String),
    /// The message in the answer is none.
    #[error(transparent)]
    Message(#[from] ProtoError),
}

impl CallError {
    /// The name of its code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            CallError::Late { .. } => "DeadlineExceeded",
            CallError::Refused { code, .. } => code_name(*code),
            CallError::Malformed(_) => "Internal",
            CallError::Message(_) => "unknown-non-grpc",
        }
    }
}

impl Channel {
    pub(super) fn new(socket: &str, timeout: Duration) -> Channel {
        // Where Go writes `@`, Linux has a zero byte.
        let socket = socket
            .strip_prefix('@')
            .map_or_else(|| socket.into(), |name| format!("\0{name}"));
        Channel {
            socket,
            timeout,
            connection: Mutex::default(),
        }
    }

    /// Calls `method` with one message, and returns the one that is answered.
    pub(super) async fn call(&self, method: &str, message: Vec<u8>) -> Result<Bytes, CallError> {
        let request = self.request(method, &message);
        let mut why = "context deadline exceeded".to_string();
        let attempts = async {
            loop {
                match self.attempt(request.clone()).await {
                    Ok(answer) => return answer,
                    Err(error) => why = error,
                }
                sleep(RETRY).await;
            }
        };
        let outcome = timeout(self.timeout, attempts).await;
        outcome.unwrap_or_else(|_| Err(CallError::Late { why }))
    }

    fn request(&self, method: &str, message: &[u8]) -> Request<Full<Bytes>> {
        let mut body = BytesMut::with_capacity(HEAD + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).expect("what we ask is small"));
        body.put_slice(message);
        let request = Request::post(format!("http://localhost{method}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(
                "grpc-timeout",
                format!("{}m", self.timeout.as_millis().max(1)),
            )
            .body(Full::new(body.freeze()));
        request.expect("our own words make a request")
    }

    /// The plug-in's answer, whatever it says; or why nobody could be asked.
    async fn attempt(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Bytes, CallError>, String> {
        let mut sender = self.connected().await?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER)
                .collect()
                .await
                .map_err(|error| error.to_string())?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            Ok((head, trailers, body.to_bytes()))
        };
        match exchange.await {
            Ok((head, _, _)) if head.status != 200 => Ok(Err(CallError::Malformed(format!(
                "unexpected HTTP status code {}",
                head.status
            )))),
            Ok((head, trailers, body)) => Ok(verdict(&trailers)
                .or_else(|| verdict(&head.headers))
                .unwrap_or_else(no_verdict)
                .and_then(|()| unframe(&body))),
            Err(error) => {
                self.connection.lock().await.take();
                Err(error)
            }
        }
    }

    async fn connected(&self) -> Result<Sender, String> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let failed =
            |error: &dyn std::fmt::Display| format!("connection error: desc = \"{error}\"");
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| failed(&error))?;
        let shaken = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(|error| failed(&error))?;
        tokio::spawn(driver);
        Ok(connection.insert(sender).clone())
    }
}

/// What headers or trailers say of the outcome, if anything.
fn verdict(headers: &HeaderMap) -> Option<Result<(), CallError>> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    match text("grpc-status") {
        "" => None,
        "0" => Some(Ok(())),
        code => {
            let code = code.parse().unwrap_or(UNKNOWN);
            Some(Err(CallError::Refused {
                code,
                message: percent::decode(text("grpc-message")).into(),
            }))
        }
    }
}

fn no_verdict() -> Result<(), CallError> {
    Err(CallError::Malformed(
        "server closed the stream without sending trailers".into(),
    ))
}

/// The message of a body that has one.
fn unframe(body: &Bytes) -> Result<Bytes, CallError> {
    let malformed = |why: &str| CallError::Malformed(why.into());
    let (head, message) = body
        .split_at_checked(HEAD)
        .ok_or_else(|| malformed("the answer has no message"))?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    match (head[0], length == message.len()) {
        (0, true) => Ok(body.slice(HEAD..)),
        (0, false) => Err(malformed(
            "the answer's message has another length than it says",
        )),
        _ => Err(malformed("the answer is compressed")),
    }
}

const UNKNOWN: usize = 2;

fn code_name(code: usize) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    NAMES.get(code).unwrap_or(&NAMES[UNKNOWN])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &'static [u8], expected: &str) {
        let shown = match unframe(&Bytes::from_static(body)) {
            Ok(message) => format!("{message:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_answer_is_one_whole_message() {
        check(b"\0\0\0\0\x02ab", "b\"ab\"");
        check(b"\0\0\0\0\0", "b\"\"");
        check(
            b"\0\0",
            "rpc error: code = Internal desc = the answer has no message",
        );
        let other = "rpc error: code = Internal desc = the answer's message has another length than it says";
        check(b"\0\0\0\0\x03ab", other);
        check(b"\0\0\0\0\x01ab", other);
        check(
            b"\x01\0\0\0\x02ab",
            "rpc error: code = Internal desc = the answer is compressed",
        );
    }

    #[test]
    fn a_refusal_says_its_code_by_name() {
        let refusal = |code: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", code.parse().unwrap());
            headers.insert("grpc-message", "so it is".parse().unwrap());
            verdict(&headers).map(|verdict| {
                verdict
                    .err()
                    .map(|error| error.to_string())
                    .unwrap_or_default()
            })
        };
        assert_eq!(refusal("0").unwrap(), "");
        assert_eq!(
            refusal("14").unwrap(),
            "rpc error: code = Unavailable desc = so it is"
        );
        assert_eq!(
            refusal("99").unwrap(),
            "rpc error: code = Unknown desc = so it is"
        );
        assert_eq!(
            refusal("x").unwrap(),
            "rpc error: code = Unknown desc = so it is"
        );
        assert!(verdict(&HeaderMap::new()).is_none() && no_verdict().is_err());
    }

    #[test]
    fn the_message_of_a_refusal_is_percent_decoded() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", "9".parse().unwrap());
        let message = "caf%C3%A9%0Aline 2, 100%25, 5% more";
        headers.insert("grpc-message", message.parse().unwrap());
        let error = verdict(&headers).unwrap().unwrap_err().to_string();
        let expected =
            "rpc error: code = FailedPrecondition desc = caf\u{e9}\nline 2, 100%, 5% more";
        assert_eq!(error, expected);
    }
}
