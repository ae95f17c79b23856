//! Unary gRPC calls on a Unix socket.
//!
//! A plug-in may start after the server or be restarted: a call retries the connection until its timeout.

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::transport::{self, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// The largest response: an encrypted seed with its annotations is far smaller.
const MAX_RESPONSE: usize = 1 << 20;
/// The time between connection attempts.
const RETRY: Duration = Duration::from_millis(100);

/// A connection to a plug-in that all calls share. The first call makes it.
pub(super) struct Channel {
    socket: String,
    timeout: Duration,
    connection: OnceLock<transport::Channel>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GrpcError {
    /// No response in time; `cause` is the last error.
    #[error("rpc error: code = DeadlineExceeded desc = {cause}")]
    Timeout { cause: String },
    /// The plug-in returned an error, or something that is not gRPC.
    #[error("rpc error: code = {} desc = {message}", code_name(*code))]
    Status { code: Code, message: String },
}

impl GrpcError {
    /// The name of its gRPC code.
    pub(super) fn code(&self) -> &'static str {
        match self {
            GrpcError::Timeout { .. } => code_name(Code::DeadlineExceeded),
            GrpcError::Status { code, .. } => code_name(*code),
        }
    }
}

/// Why one attempt of a call failed.
enum AttemptError {
    /// There was no response.
    Connection(String),
    Status(GrpcError),
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
            connection: OnceLock::new(),
        }
    }

    /// Calls `method` with a message. Returns the message of the response.
    pub(super) async fn call<M, R>(&self, method: &'static str, message: M) -> Result<R, GrpcError>
    where
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let mut cause = "context deadline exceeded".to_string();
        let attempts = async {
            loop {
                match self.attempt(method, message.clone()).await {
                    Ok(response) => return Ok(response),
                    Err(AttemptError::Status(error)) => return Err(error),
                    Err(AttemptError::Connection(error)) => cause = error,
                }
                sleep(RETRY).await;
            }
        };
        let outcome = timeout(self.timeout, attempts).await;
        outcome.unwrap_or_else(|_| Err(GrpcError::Timeout { cause }))
    }

    async fn attempt<M, R>(&self, method: &'static str, message: M) -> Result<R, AttemptError>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.connection().clone()).max_decoding_message_size(MAX_RESPONSE);
        grpc.ready()
            .await
            .map_err(|error| AttemptError::unconnected(&error))?;
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        let path = PathAndQuery::from_static(method);
        grpc.unary(request, path, ProstCodec::<M, R>::default())
            .await
            .map(tonic::Response::into_inner)
            .map_err(|status| AttemptError::from_status(&status))
    }

    fn connection(&self) -> &transport::Channel {
        self.connection.get_or_init(|| {
            Endpoint::from_shared(format!("unix://{}", self.socket))
                .expect("a text that begins with unix:// is an endpoint")
                .connect_lazy()
        })
    }
}

impl AttemptError {
    fn from_status(status: &Status) -> AttemptError {
        // tonic reports failures of the connection as a status, too.
        let source = status.source();
        if let Some(error) = source.and_then(|source| source.downcast_ref::<transport::Error>()) {
            return AttemptError::unconnected(error);
        }
        AttemptError::Status(GrpcError::Status {
            code: status.code(),
            message: status.message().into(),
        })
    }

    fn unconnected(error: &transport::Error) -> AttemptError {
        let mut root: &dyn std::error::Error = error;
        while let Some(cause) = root.source() {
            root = cause;
        }
        AttemptError::Connection(format!("connection error: desc = \"{root}\""))
    }
}

/// The name of a code, as Go writes it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::UnixListener;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }

    /// The outcome of a call that is answered with a body and headers.
    async fn outcome(
        body: &'static [u8],
        code: Option<&'static str>,
        message: &'static str,
    ) -> String {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("kms.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let respond = move |_: Request<Incoming>| async move {
            let mut response = Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-message", message);
            if let Some(code) = code {
                response = response.header("grpc-status", code);
            }
            let body = Full::new(Bytes::from_static(body));
            Ok::<_, Infallible>(response.body(body).unwrap())
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service_fn(respond));
            let _ = connection.await;
            std::future::pending::<()>().await
        };
        let channel = Channel::new(socket.to_str().unwrap(), Duration::from_secs(5));
        let request = Text::default();
        tokio::select! {
            called = channel.call::<Text, Text>("/a/b", request) => match called {
                Ok(response) => response.text,
                Err(error) => error.to_string(),
            },
            () = server => unreachable!(),
        }
    }

    #[tokio::test]
    async fn a_response_is_one_whole_frame() {
        let malformed = [
            (&b"\0\0"[..], "no message"),
            (b"\0\0\0\0\x09\x0a\x02ok", "longer than it is"),
            (b"\x01\0\0\0\x04\x0a\x02ok", "compressed"),
        ];
        for (body, what) in malformed {
            let error = outcome(body, None, "").await;
            assert!(error.starts_with("rpc error: code = "), "{what}: {error}");
        }
    }

    #[tokio::test]
    async fn an_error_has_the_name_of_its_code_and_its_message_is_decoded() {
        let error = outcome(b"", Some("14"), "so it is").await;
        assert_eq!(error, "rpc error: code = Unavailable desc = so it is");
        let error = outcome(b"", Some("99"), "so it is").await;
        assert_eq!(error, "rpc error: code = Unknown desc = so it is");
        let error = outcome(b"", Some("9"), "caf%C3%A9%0Aline 2, 100%25").await;
        let expected = "rpc error: code = FailedPrecondition desc = caf\u{e9}\nline 2, 100%";
        assert_eq!(error, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_plug_in_is_the_cause_of_the_timeout() {
        let channel = Channel::new("/nowhere/kms.sock", Duration::from_secs(3));
        let called = channel.call::<Text, Text>("/a/b", Text::default()).await;
        assert_eq!(
            called.unwrap_err().to_string(),
            "rpc error: code = DeadlineExceeded desc = connection error: desc = \"No such file or directory (os error 2)\""
        );
    }
}
