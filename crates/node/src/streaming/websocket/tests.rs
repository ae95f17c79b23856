//! A hand-written WebSocket client, on paused time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{ChannelEncoding, serve, tunnel};
use crate::streaming::limits::StreamLimits;
use crate::streaming::stream::UpgradedStream;
use mizzen_transport::websocket::{WebSocketError, accept_key};

/// The pieces in which messages are passed on.
const PIECE: usize = 16 * 1024;
const V5: ChannelEncoding = ChannelEncoding::Binary { closes: true };

struct Client(DuplexStream);

impl Client {
    async fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length @ ..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        self.0.write_all(&frame).await.unwrap();
    }

    /// The next frame: its first byte and its payload; `None` at the end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = self.0.read_u8().await.ok()?;
        let length = match self.0.read_u8().await.unwrap() {
            126 => u64::from(self.0.read_u16().await.unwrap()),
            127 => self.0.read_u64().await.unwrap(),
            length => u64::from(length),
        };
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.unwrap();
        Some((first, payload))
    }

    /// So many bytes of data on channel 1, and the pings that are answered meanwhile.
    async fn data(&mut self, length: usize) -> (Vec<u8>, usize) {
        let (mut data, mut n_pongs) = (Vec::new(), 0);
        while data.len() < length {
            match self.next().await.unwrap() {
                (0x82, frame) => {
                    assert_eq!(frame[0], 1);
                    data.extend_from_slice(&frame[1..]);
                }
                (0x8a, _) => n_pongs += 1,
                (first, _) => panic!("a frame {first:x}"),
            }
        }
        (data, n_pongs)
    }
}

/// Serves a client: channel 0 is echoed on channel 1, and its end ends everything.
fn start(
    limits: StreamLimits,
    encoding: ChannelEncoding,
) -> (Client, JoinHandle<Result<(), WebSocketError>>) {
    let (near, far) = duplex(1 << 20);
    let echo = |mut channels: Vec<UpgradedStream>| async move {
        let output = channels[1].output.clone();
        while let Some(data) = channels[0].input.recv().await {
            let _ = output.send(data).await;
        }
        let _ = output.send("bye".into()).await;
    };
    (
        Client(near),
        tokio::spawn(serve(far, limits, encoding, 3, echo)),
    )
}

#[test]
fn a_key_is_answered_as_the_standard_says() {
    assert_eq!(
        accept_key("dGhlIHNhbXBsZSBub25jZQ=="),
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
}

#[tokio::test(start_paused = true)]
async fn channels_carry_data_and_one_side_of_them_can_be_closed() {
    let (mut client, served) = start(StreamLimits::default(), V5);
    client.send(0x82, b"\0hello").await;
    assert_eq!(client.next().await, Some((0x82, b"\x01hello".to_vec())));
    // A message in three frames, with a ping in between.
    client.send(0x02, b"\0a").await;
    client.send(0x89, b"ping").await;
    client.send(0x00, b"b").await;
    client.send(0x80, b"c").await;
    assert_eq!(client.data(3).await, (b"abc".to_vec(), 1));
    client.send(0x82, b"\x09ignored").await;
    client.send(0x82, b"").await;
    client.send(0x02, b"").await;
    client.send(0x80, b"\0x").await;
    assert_eq!(client.next().await, Some((0x82, b"\x01x".to_vec())));
    // The signal in two frames.
    client.send(0x02, &[255]).await;
    client.send(0x80, &[0]).await;
    assert_eq!(client.next().await, Some((0x82, b"\x01bye".to_vec())));
    assert_eq!(
        client.next().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    assert_eq!(client.next().await, None);
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_passed_on_while_it_arrives() {
    let (mut client, served) = start(StreamLimits::default(), V5);
    let large: Vec<u8> = (0..8 << 20).map(|at: u32| (at % 251) as u8).collect();
    let length = large.len() as u64 + 1;
    let mut head = vec![0x82, 0xff];
    head.extend(length.to_be_bytes());
    head.extend([0; 4]);
    head.push(0);
    client.0.write_all(&head).await.unwrap();
    let (mut n_sent, mut echoed) = (1, Vec::new());
    for part in large.chunks(100_000) {
        client.0.write_all(part).await.unwrap();
        n_sent += part.len();
        // The pieces that have arrived, without the byte of the channel.
        let n_whole = n_sent / PIECE * PIECE - 1;
        echoed.extend(client.data(n_whole - echoed.len()).await.0);
    }
    echoed.extend(client.data(large.len() - echoed.len()).await.0);
    assert!(echoed == large);
    drop(client);
    let _ = served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn base64_channels_are_text() {
    let (mut client, _served) = start(StreamLimits::default(), ChannelEncoding::Base64);
    client.send(0x81, b"0aGVsbG8=").await;
    assert_eq!(client.next().await, Some((0x81, b"1aGVsbG8=".to_vec())));
    // A message in frames that end within a group of digits.
    client.send(0x01, b"0aGVsbG").await;
    assert_eq!(client.next().await, Some((0x81, b"1aGVs".to_vec())));
    client.send(0x80, b"8=").await;
    assert_eq!(client.next().await, Some((0x81, b"1bG8=".to_vec())));
    client.send(0x81, b"0?").await;
    assert_eq!(
        client.next().await,
        Some((0x88, 1002_u16.to_be_bytes().to_vec()))
    );
    let (mut client, _served) = start(StreamLimits::default(), ChannelEncoding::Base64);
    client.send(0x01, b"0aGVsbG8=").await;
    assert_eq!(client.next().await, Some((0x81, b"1aGVsbG8=".to_vec())));
    client.send(0x80, b"aGVs").await;
    assert_eq!(
        client.next().await,
        Some((0x88, 1002_u16.to_be_bytes().to_vec())),
        "padding ends it"
    );
}

#[tokio::test(start_paused = true)]
async fn garbage_and_oversized_messages_end_the_connection() {
    let large = [0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0];
    for (bytes, status) in [
        (&large[..], 1009_u16),
        (b"\x82\x05hello", 1002),
        (b"\xf2\x80", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),
        (b"\x89\xfe\x01\0", 1002),
    ] {
        let (mut client, served) = start(StreamLimits::default(), V5);
        client.0.write_all(bytes).await.unwrap();
        assert_eq!(
            client.next().await,
            Some((0x88, status.to_be_bytes().to_vec())),
            "{bytes:?}"
        );
        assert!(served.await.unwrap().is_err());
    }
    let (mut client, _served) = start(
        StreamLimits {
            message: 10,
            ..StreamLimits::default()
        },
        V5,
    );
    client.send(0x02, b"\x0012345").await;
    assert_eq!(client.next().await, Some((0x82, b"\x0112345".to_vec())));
    client.send(0x80, b"67890").await;
    assert_eq!(
        client.next().await,
        Some((0x88, 1009_u16.to_be_bytes().to_vec())),
        "in parts"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let (mut client, served) = start(
        StreamLimits {
            idle: Duration::from_secs(60),
            ..StreamLimits::default()
        },
        V5,
    );
    let began = Instant::now();
    assert_eq!(
        client.next().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    assert_eq!(began.elapsed().as_secs(), 60);
    assert!(matches!(served.await.unwrap(), Err(WebSocketError::Idle)));
}

#[tokio::test(start_paused = true)]
async fn a_disconnect_or_a_close_ends_the_work() {
    let (client, served) = start(StreamLimits::default(), V5);
    drop(client);
    let _ = served.await.unwrap();
    let (mut client, served) = start(StreamLimits::default(), V5);
    client.send(0x88, &1000_u16.to_be_bytes()).await;
    assert_eq!(
        client.next().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    served.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_carries_bytes_in_messages() {
    let (near, far) = duplex(1 << 20);
    let served = tokio::spawn(tunnel(far, StreamLimits::default(), |mut io| async move {
        let mut word = [0; 6];
        io.read_exact(&mut word).await.unwrap();
        io.write_all(&word).await.unwrap();
    }));
    let mut client = Client(near);
    client.send(0x82, b"abc").await;
    client.send(0x82, b"def").await;
    assert_eq!(client.next().await, Some((0x82, b"abcdef".to_vec())));
    assert_eq!(
        client.next().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    served.await.unwrap().unwrap();
}
