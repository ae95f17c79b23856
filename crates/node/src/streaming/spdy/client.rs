//! The client side of SPDY/3.1, as far as a container runtime serves it: all streams are opened at
//! the start, and the exchange ends when the peer has closed those that it writes to.

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::join_all;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connection::{FRAMES, PIECE, SpdyError, SpdyFrame, VERSION};
use super::headers::{Deflater, Headers, Inflater};
use crate::streaming::limits::StreamLimits;

/// An upgraded connection.
pub(crate) type UpgradedIo = TokioIo<Upgraded>;

/// A stream to open.
pub(crate) struct ClientStream {
    headers: Headers,
    /// What is sent; the end closes this side.
    input: Option<mpsc::Receiver<Bytes>>,
    /// Where received data goes, until the peer closes its side.
    output: Option<mpsc::Sender<Bytes>>,
}

impl ClientStream {
    fn new(
        kind: &str,
        input: Option<mpsc::Receiver<Bytes>>,
        output: Option<mpsc::Sender<Bytes>>,
    ) -> ClientStream {
        ClientStream {
            headers: Headers(vec![("streamtype".into(), kind.into())]),
            input,
            output,
        }
    }

    pub(crate) fn sends(kind: &str, input: mpsc::Receiver<Bytes>) -> ClientStream {
        ClientStream::new(kind, Some(input), None)
    }

    pub(crate) fn receives(kind: &str, output: mpsc::Sender<Bytes>) -> ClientStream {
        ClientStream::new(kind, None, Some(output))
    }

    pub(crate) fn both(
        kind: &str,
        input: mpsc::Receiver<Bytes>,
        output: mpsc::Sender<Bytes>,
    ) -> ClientStream {
        ClientStream::new(kind, Some(input), Some(output))
    }

    /// The same with further headers.
    pub(crate) fn with_headers(mut self, headers: &[(&str, String)]) -> ClientStream {
        let headers = headers.iter().cloned();
        let headers = headers.map(|(name, value)| (name.to_owned(), value));
        self.headers.0.extend(headers);
        self
    }
}

/// Connects to a URL of a runtime and upgrades the connection.
pub(crate) async fn connect(url: &str, protocol: &str) -> io::Result<UpgradedIo> {
    let limit = StreamLimits::default().creation;
    match timeout(limit, upgrade(url, protocol)).await {
        Ok(upgraded) => upgraded,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no response")),
    }
}

async fn upgrade(url: &str, protocol: &str) -> io::Result<UpgradedIo> {
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(io::Error::other(format!(
            "the runtime streams at {url:?}, not over HTTP"
        )));
    };
    let stream = TcpStream::connect(authority.as_str()).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // The connection lives on in the upgraded stream.
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(HOST, authority.as_str())
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "SPDY/3.1")
        .header(CONTENT_LENGTH, "0")
        .header("x-stream-protocol-version", protocol)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let upgraded = hyper::upgrade::on(response).await;
            upgraded.map(TokioIo::new).map_err(io::Error::other)
        }
        status => Err(io::Error::other(format!("the runtime answered {status}"))),
    }
}

/// Opens streams and copies in both directions until the peer has closed all that are received.
pub(crate) async fn exchange(io: UpgradedIo, streams: Vec<ClientStream>) -> Result<(), SpdyError> {
    let (read, mut write) = tokio::io::split(io);
    let (frames, mut queue) = mpsc::channel::<SpdyFrame>(FRAMES);
    let mut outputs = HashMap::new();
    let mut sending = Vec::new();
    let mut opened = Vec::new();
    for (stream, id) in streams.into_iter().zip((1..).step_by(2)) {
        opened.push(SpdyFrame::Open {
            id,
            headers: stream.headers,
        });
        if let Some(output) = stream.output {
            outputs.insert(id, output);
        }
        if let Some(input) = stream.input {
            sending.push(send(id, input, frames.clone()));
        }
    }
    let writing = async {
        let mut deflater = Deflater::default();
        for frame in opened {
            write.write_all(&frame.encode(&mut deflater)).await?;
        }
        write.flush().await?;
        while let Some(frame) = queue.recv().await {
            write.write_all(&frame.encode(&mut deflater)).await?;
            if queue.is_empty() {
                write.flush().await?;
            }
        }
        Ok::<(), io::Error>(())
    };
    let sending = async {
        join_all(sending).await;
        std::future::pending::<()>().await
    };
    tokio::select! {
        ended = receive(read, outputs, frames.clone()) => ended,
        ended = writing => ended.map_err(SpdyError::Io),
        () = sending => Ok(()),
    }
}

/// Sends what arrives, then closes this side of the stream.
async fn send(id: u32, mut input: mpsc::Receiver<Bytes>, frames: mpsc::Sender<SpdyFrame>) {
    while let Some(mut data) = input.recv().await {
        while !data.is_empty() {
            let data = data.split_to(data.len().min(PIECE));
            let frame = SpdyFrame::Data {
                id,
                data,
                fin: false,
            };
            if frames.send(frame).await.is_err() {
                return;
            }
        }
    }
    let data = Bytes::new();
    let _ = frames
        .send(SpdyFrame::Data {
            id,
            data,
            fin: true,
        })
        .await;
}

/// Reads frames until all outputs are closed.
async fn receive<R: AsyncRead>(
    mut io: tokio::io::ReadHalf<R>,
    mut outputs: HashMap<u32, mpsc::Sender<Bytes>>,
    frames: mpsc::Sender<SpdyFrame>,
) -> Result<(), SpdyError> {
    let (mut inflater, most) = (Inflater::default(), StreamLimits::default().control_frame);
    while !outputs.is_empty() {
        let mut head = [0; 8];
        match io.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let (fin, mut left) = (
            head[4] & 1 != 0,
            u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize,
        );
        if first >> 31 == 0 {
            while left > 0 {
                let mut piece = BytesMut::zeroed(left.min(PIECE));
                io.read_exact(&mut piece).await?;
                left -= piece.len();
                // A client that has gone reads no more; the rest is dropped.
                if let Some(output) = outputs.get(&first) {
                    let _ = output.send(piece.freeze()).await;
                }
            }
            if fin {
                outputs.remove(&first);
            }
            continue;
        }
        let version = (first >> 16 & 0x7fff) as u16;
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        if left > most {
            return Err(SpdyError::FrameTooLarge(left));
        }
        let mut payload = vec![0; left];
        io.read_exact(&mut payload).await?;
        let mut payload = payload.as_slice();
        let id = payload
            .try_get_u32()
            .map_err(|_| SpdyError::Malformed("control"))?;
        match first & 0xffff {
            // SYN_REPLY and HEADERS: the compression state must advance.
            2 | 8 => {
                inflater.read(payload)?;
                if fin {
                    outputs.remove(&id);
                }
            }
            3 => drop(outputs.remove(&id)),
            // Even IDs are pings of the server.
            6 if id.is_multiple_of(2) => {
                let _ = frames.send(SpdyFrame::Ping { id }).await;
            }
            7 => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}
