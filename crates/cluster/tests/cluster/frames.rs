//! HTTP/2 frames that no library would send, over TLS to the real server.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::client::{Credentials, dial};
use crate::process::{Process, STEP_TIMEOUT};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The error code of a server under attack.
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The header block of a request.
pub(crate) fn head(method: &str, path: &str) -> Vec<u8> {
    let mut bytes = match method {
        "GET" => vec![0x82],
        "POST" => vec![0x83],
        method => literal(0x02, method),
    };
    bytes.push(0x87);
    bytes.extend(literal(0x04, path));
    bytes.extend(literal(0x01, "x"));
    bytes
}

/// A header field whose name is in the static table, optionally indexed.
pub(crate) fn literal(name: u8, value: &str) -> Vec<u8> {
    let mut bytes = vec![name];
    match value.len() {
        length @ 0..127 => bytes.push(length as u8),
        length => {
            bytes.push(127);
            let mut rest = length - 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend(value.as_bytes());
    bytes
}

/// A literal header field.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    [literal(0, name), literal(0, value)[1..].to_vec()].concat()
}

/// A received frame.
pub(crate) struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// A connection for hand-written frames.
pub(crate) struct Wire(TlsStream<TcpStream>);

impl Wire {
    /// A connection of the administrator with these settings.
    pub(crate) async fn open(process: &Process, settings: &[u8]) -> Wire {
        Wire::open_as(process, &process.credentials, settings).await
    }

    pub(crate) async fn open_as(
        process: &Process,
        credentials: &Credentials,
        settings: &[u8],
    ) -> Wire {
        let mut stream = dial(&process.address, credentials, &["h2"]).await;
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(frame(SETTINGS, 0, 0, settings));
        stream.write_all(&hello).await.unwrap();
        Wire(stream)
    }

    /// Writes bytes; false once the server does not accept more, because it closed the connection or waits for
    /// the client to read.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        let written = async {
            self.0.write_all(bytes).await?;
            self.0.flush().await
        };
        matches!(timeout(Duration::from_secs(2), written).await, Ok(Ok(())))
    }

    /// The next frame; none when the server has closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let read = timeout(STEP_TIMEOUT, self.read())
            .await
            .expect("something in time");
        read.ok()
    }

    async fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).await?;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            payload,
        })
    }

    /// Reads until a GOAWAY or the end of the connection. None without a GOAWAY.
    pub(crate) async fn goodbye(&mut self) -> Option<u32> {
        while let Some(frame) = self.next().await {
            if frame.kind == GO_AWAY {
                return Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        None
    }
}
