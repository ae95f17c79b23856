//! `/tunnel`: a byte stream to a port of a pod.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};

use super::limits::Activity;

/// The size of the pieces in which data is passed on.
const PIECE: usize = 16 * 1024;

/// Copies in both directions until both have ended, or nothing was copied for too long.
pub(super) async fn tunnel(
    client: impl AsyncRead + AsyncWrite,
    pod: impl AsyncRead + AsyncWrite,
    activity: &Activity,
) -> io::Result<()> {
    let (from_client, to_client) = split(client);
    let (from_pod, to_pod) = split(pod);
    let both = async {
        tokio::try_join!(
            copy(from_client, to_pod, activity),
            copy(from_pod, to_client, activity)
        )
    };
    tokio::select! {
        copied = both => copied.map(|_| ()),
        () = activity.expired() => Err(io::Error::new(io::ErrorKind::TimedOut, "idle for too long")),
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = from.read(&mut piece).await?;
        activity.touch();
        if n == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..n]).await?;
        to.flush().await?;
        activity.touch();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::duplex;
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_tunnel_is_closed() {
        let (mut client, near) = duplex(64);
        let (mut pod, far) = duplex(64);
        let began = Instant::now();
        let served = tokio::spawn(async move {
            let activity = Activity::new(Duration::from_secs(60));
            tunnel(near, far, &activity).await
        });
        let mut word = [0; 2];
        client.write_all(b"hi").await.unwrap();
        pod.read_exact(&mut word).await.unwrap();
        advance(Duration::from_secs(50)).await;
        pod.write_all(b"yo").await.unwrap();
        client.read_exact(&mut word).await.unwrap();
        assert_eq!(client.read(&mut word).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), 110);
        let error = served.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn each_side_of_a_tunnel_ends_on_its_own() {
        let (mut client, near) = duplex(64);
        let (mut pod, far) = duplex(64);
        let served = tokio::spawn(async move {
            let activity = Activity::new(Duration::from_secs(60));
            tunnel(near, far, &activity).await
        });
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let mut text = String::new();
        pod.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "request");
        pod.write_all(b"response").await.unwrap();
        drop(pod);
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "response");
        served.await.unwrap().unwrap();
    }
}
