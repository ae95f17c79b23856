//! A hand-written SPDY client, on paused time.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::{SpdyError, serve};
use super::headers::{Deflater, Headers};
use crate::streaming::limits::StreamLimits;
use crate::streaming::stream::UpgradedStream;

struct Client {
    io: DuplexStream,
    deflater: Deflater,
}

impl Client {
    async fn control(&mut self, kind: u16, payload: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_u16(0x8003);
        frame.put_u16(kind);
        frame.put_u32(payload.len() as u32);
        frame.put_slice(payload);
        self.io.write_all(&frame).await.unwrap();
    }

    async fn open(&mut self, id: u32, kind: &str) {
        let headers = Headers(vec![("streamtype".into(), kind.into())]);
        let mut payload = BytesMut::new();
        payload.put_u32(id);
        payload.put_u32(0);
        payload.put_u16(0);
        payload.put_slice(&self.deflater.write(&headers));
        self.control(1, &payload).await;
    }

    async fn data(&mut self, id: u32, data: &[u8], fin: bool) {
        let mut frame = BytesMut::new();
        frame.put_u32(id);
        frame.put_u32(u32::from(fin) << 24 | data.len() as u32);
        frame.put_slice(data);
        self.io.write_all(&frame).await.unwrap();
    }

    /// The next frame: its first four bytes, its flags, and its payload; `None` at the end.
    async fn next(&mut self) -> Option<(u32, u8, Vec<u8>)> {
        let first = self.io.read_u32().await.ok()?;
        let second = self.io.read_u32().await.unwrap();
        let mut payload = vec![0; (second & 0xff_ffff) as usize];
        self.io.read_exact(&mut payload).await.unwrap();
        Some((first, (second >> 24) as u8, payload))
    }

    /// Expects a control frame of this kind with these words.
    async fn expect(&mut self, kind: u16, words: &[u32]) {
        let (first, _, payload) = self.next().await.expect("a frame");
        assert_eq!(first, 0x8003_0000 | u32::from(kind), "{payload:?}");
        let found: Vec<u32> = payload
            .chunks(4)
            .take(words.len())
            .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(found, words);
    }
}

/// Serves a client with streams that echo.
fn start(limits: StreamLimits) -> (Client, tokio::task::JoinHandle<Result<(), SpdyError>>) {
    let (near, far) = duplex(1 << 20);
    let echo = |mut opened: mpsc::Receiver<UpgradedStream>| async move {
        let mut streams = tokio::task::JoinSet::new();
        while let Some(mut stream) = opened.recv().await {
            streams.spawn(async move {
                while let Some(data) = stream.input.recv().await {
                    let _ = stream.output.send(data).await;
                }
                stream.output.finish().await;
            });
        }
    };
    let accepts = |headers: &Headers| match headers.get("streamtype") {
        "bad" => Err("bad".to_owned()),
        _ => Ok(()),
    };
    let served = tokio::spawn(serve(far, limits, accepts, echo));
    (
        Client {
            io: near,
            deflater: Deflater::default(),
        },
        served,
    )
}

#[tokio::test(start_paused = true)]
async fn streams_carry_data_both_ways_and_end_one_by_one() {
    let (mut client, served) = start(StreamLimits::default());
    client.open(1, "data").await;
    client.expect(2, &[1]).await;
    client.open(3, "error").await;
    client.expect(2, &[3]).await;
    client.data(3, b"three", false).await;
    assert_eq!(client.next().await, Some((3, 0, b"three".to_vec())));
    let large: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    client.data(1, &large, true).await;
    let mut found = Vec::new();
    loop {
        let (id, flags, data) = client.next().await.unwrap();
        assert_eq!(id, 1);
        found.extend(data);
        if flags & 1 != 0 {
            break;
        }
    }
    assert_eq!(
        found, large,
        "a frame that is larger than a piece arrives whole"
    );
    client.control(6, &7_u32.to_be_bytes()).await;
    client.expect(6, &[7]).await;
    client
        .control(3, &[3_u32.to_be_bytes(), 5_u32.to_be_bytes()].concat())
        .await;
    assert_eq!(
        client.next().await,
        Some((3, 1, vec![])),
        "a reset stream has ended"
    );
    client.control(7, &[0; 8]).await;
    client.expect(7, &[0, 0]).await;
    assert!(client.next().await.is_none());
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_and_excess_streams_are_rejected() {
    let (mut client, _served) = start(StreamLimits {
        streams: 2,
        ..StreamLimits::default()
    });
    client.open(2, "data").await;
    client.expect(3, &[2, 1]).await;
    client.open(5, "bad").await;
    client.expect(3, &[5, 5]).await;
    for id in [7, 9] {
        client.open(id, "data").await;
        client.expect(2, &[id]).await;
    }
    client.open(9, "data").await;
    client.expect(3, &[9, 1]).await;
    client.open(11, "data").await;
    client.expect(3, &[11, 3]).await;
    client.data(7, b"", true).await;
    assert_eq!(client.next().await, Some((7, 1, vec![])));
    tokio::task::yield_now().await;
    client.open(13, "data").await;
    client.expect(2, &[13]).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_and_oversized_frames_end_the_connection() {
    let large = [0x80, 3, 0, 1, 0, 2, 0, 0];
    for (bytes, problem) in [
        (&large[..], "a control frame of 131072 bytes"),
        (b"\x80\x02\0\x01\0\0\0\0", "a frame of SPDY version 2"),
        (
            b"\x80\x03\0\x01\0\0\0\x02xx",
            "a malformed SYN_STREAM frame",
        ),
        (
            b"\x80\x03\0\x01\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0evil",
            "the header block is not a zlib stream",
        ),
    ] {
        let (mut client, served) = start(StreamLimits::default());
        client.io.write_all(bytes).await.unwrap();
        client.expect(7, &[0, 1]).await;
        assert!(client.next().await.is_none());
        let error = served.await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_traffic_keeps_it_open() {
    let limits = StreamLimits {
        idle: Duration::from_secs(60),
        ..StreamLimits::default()
    };
    let (mut client, served) = start(limits);
    let began = Instant::now();
    client.open(1, "data").await;
    client.expect(2, &[1]).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    client.data(1, b"x", false).await;
    assert!(client.next().await.is_some());
    client.expect(7, &[0, 1]).await;
    assert_eq!(began.elapsed().as_secs(), 110);
    assert!(matches!(served.await.unwrap(), Err(SpdyError::Idle)));
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_client_disconnects() {
    let (near, far) = duplex(1024);
    let (guard, dropped) = tokio::sync::oneshot::channel::<()>();
    let work = move |_: mpsc::Receiver<UpgradedStream>| async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    };
    let served = tokio::spawn(serve(far, StreamLimits::default(), |_| Ok(()), work));
    tokio::task::yield_now().await;
    drop(near);
    assert!(dropped.await.is_err());
    let _ = served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_blocks_its_stream_with_bounded_memory() {
    let (near, far) = duplex(1024);
    let (progress, mut sent) = mpsc::channel(1000);
    let work = move |_opened: mpsc::Receiver<UpgradedStream>| async move {
        let mut opened = _opened;
        let stream = opened.recv().await.unwrap();
        loop {
            stream
                .output
                .send(Bytes::from(vec![0; 1024]))
                .await
                .unwrap();
            progress.try_send(()).unwrap();
        }
    };
    tokio::spawn(serve(far, StreamLimits::default(), |_| Ok(()), work));
    let mut client = Client {
        io: near,
        deflater: Deflater::default(),
    };
    client.open(1, "data").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut count = 0;
    while sent.try_recv().is_ok() {
        count += 1;
    }
    assert!((1..100).contains(&count), "{count} pieces wait");
}
