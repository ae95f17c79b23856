//! Unary gRPC calls over HTTP/2 on a Unix socket.
//!
//! A plug-in may start after the server or be restarted: a call retries the connection until its timeout.

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

/// The largest response: an encrypted seed with its annotations is far smaller.
const MAX_RESPONSE: usize = 1 << 20;
/// The time between connection attempts.
const RETRY: Duration = Duration::from_millis(100);
/// The length of the gRPC frame header: a flag for compression, and the length of the message.
const HEAD: usize = 5;

/// A connection to a plug-in that all calls share.
pub(super) struct Channel {
    socket: String,
    timeout: Duration,
    connection: Mutex<Option<Sender>>,
}

type Sender = SendRequest<Full<Bytes>>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GrpcError {
    /// No response in time; `cause` is the last error.
    #[error("rpc error: code = DeadlineExceeded desc = {cause}")]
    Timeout { cause: String },
    /// The plug-in returned an error.
    #[error("rpc error: code = {} desc = {message}", code_name(*code))]
    Status { code: usize, message: String },
    /// The response is not gRPC.
    #[error("rpc error: code = Internal desc = {0}")]
    Malformed(String),
    /// The message in the response is not protobuf.
    #[error(transparent)]
    Message(#[from] ProtoError),
}

impl GrpcError {
    /// The name of its gRPC code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            GrpcError::Timeout { .. } => "DeadlineExceeded",
            GrpcError::Status { code, .. } => code_name(*code),
            GrpcError::Malformed(_) => "Internal",
            GrpcError::Message(_) => "unknown-non-grpc",
        }
    }
}

impl Channel {
    pub(super) fn new(socket: &str, timeout: Duration) -> Channel {
        // An abstract socket: Go writes `@`, Linux expects a zero byte.
        let socket = socket
            .strip_prefix('@')
            .map_or_else(|| socket.into(), |name| format!("\0{name}"));
        Channel {
            socket,
            timeout,
            connection: Mutex::default(),
        }
    }

    /// Calls `method` with a message. Returns the message of the response.
    pub(super) async fn call(&self, method: &str, message: Vec<u8>) -> Result<Bytes, GrpcError> {
        let request = self.request(method, &message);
        let mut cause = "context deadline exceeded".to_string();
        let attempts = async {
            loop {
                match self.attempt(request.clone()).await {
                    Ok(result) => return result,
                    Err(error) => cause = error,
                }
                sleep(RETRY).await;
            }
        };
        let outcome = timeout(self.timeout, attempts).await;
        outcome.unwrap_or_else(|_| Err(GrpcError::Timeout { cause }))
    }

    fn request(&self, method: &str, message: &[u8]) -> Request<Full<Bytes>> {
        let mut body = BytesMut::with_capacity(HEAD + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).expect("requests are small"));
        body.put_slice(message);
        let request = Request::post(format!("http://localhost{method}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(
                "grpc-timeout",
                format!("{}m", self.timeout.as_millis().max(1)),
            )
            .body(Full::new(body.freeze()));
        request.expect("the request is valid")
    }

    /// The result of the call; or why there was no response.
    async fn attempt(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Bytes, GrpcError>, String> {
        let mut sender = self.connect().await?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE)
                .collect()
                .await
                .map_err(|error| error.to_string())?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            Ok((head, trailers, body.to_bytes()))
        };
        match exchange.await {
            Ok((head, _, _)) if head.status != 200 => Ok(Err(GrpcError::Malformed(format!(
                "unexpected HTTP status code {}",
                head.status
            )))),
            Ok((head, trailers, body)) => Ok(grpc_status(&trailers)
                .or_else(|| grpc_status(&head.headers))
                .unwrap_or_else(|| {
                    let why = "server closed the stream without sending trailers";
                    Err(GrpcError::Malformed(why.into()))
                })
                .and_then(|()| decode_frame(&body))),
            Err(error) => {
                self.connection.lock().await.take();
                Err(error)
            }
        }
    }

    /// The open connection, or a new one.
    async fn connect(&self) -> Result<Sender, String> {
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let failed =
            |error: &dyn std::fmt::Display| format!("connection error: desc = \"{error}\"");
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| failed(&error))?;
        let connected = handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, driver) = connected.map_err(|error| failed(&error))?;
        tokio::spawn(driver);
        Ok(connection.insert(sender).clone())
    }
}

/// The `grpc-status` of headers or trailers.
fn grpc_status(headers: &HeaderMap) -> Option<Result<(), GrpcError>> {
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
            Some(Err(GrpcError::Status {
                code,
                message: percent::decode(text("grpc-message")).into(),
            }))
        }
    }
}

/// The message of a body with exactly one frame.
fn decode_frame(body: &Bytes) -> Result<Bytes, GrpcError> {
    let malformed = |why: &str| GrpcError::Malformed(why.into());
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
        let shown = match decode_frame(&Bytes::from_static(body)) {
            Ok(message) => format!("{message:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_response_is_one_whole_frame() {
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
    fn an_error_has_the_name_of_its_code() {
        let error = |code: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", code.parse().unwrap());
            headers.insert("grpc-message", "so it is".parse().unwrap());
            grpc_status(&headers).map(|status| {
                status
                    .err()
                    .map(|error| error.to_string())
                    .unwrap_or_default()
            })
        };
        assert_eq!(error("0").unwrap(), "");
        assert_eq!(
            error("14").unwrap(),
            "rpc error: code = Unavailable desc = so it is"
        );
        assert_eq!(
            error("99").unwrap(),
            "rpc error: code = Unknown desc = so it is"
        );
        assert_eq!(
            error("x").unwrap(),
            "rpc error: code = Unknown desc = so it is"
        );
        assert!(grpc_status(&HeaderMap::new()).is_none());
    }

    #[test]
    fn the_message_of_an_error_is_percent_decoded() {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", "9".parse().unwrap());
        let message = "caf%C3%A9%0Aline 2, 100%25, 5% more";
        headers.insert("grpc-message", message.parse().unwrap());
        let error = grpc_status(&headers).unwrap().unwrap_err().to_string();
        let expected =
            "rpc error: code = FailedPrecondition desc = caf\u{e9}\nline 2, 100%, 5% more";
        assert_eq!(error, expected);
    }
}
