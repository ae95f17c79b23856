//! Limits of upgraded connections.

use parking_lot::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The default idle timeout, that of the kubelet.
pub const STREAMING_IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 3_600);

/// The limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamLimits {
    /// The idle timeout; zero for none. Kubernetes: `streamingConnectionIdleTimeout` of the kubelet.
    pub idle: Duration,
    /// The time limit for a client to open all its streams. Kubernetes: the kubelet's.
    pub creation: Duration,
    /// The most concurrent streams.
    pub streams: usize,
    /// The largest SPDY control frame. Data frames are passed on in pieces.
    pub control_frame: usize,
    /// The largest WebSocket message, which is passed on in pieces. Kubernetes: golang.org/x/net,
    /// websocket.go, `DefaultMaxPayloadBytes`.
    pub message: usize,
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits {
            idle: STREAMING_IDLE_TIMEOUT,
            creation: Duration::from_secs(30),
            streams: 256,
            control_frame: 64 * 1024,
            message: 32 * 1024 * 1024,
        }
    }
}

/// When a connection was last active.
pub(super) struct Activity {
    last: Mutex<Instant>,
    idle: Duration,
}

impl Activity {
    pub(super) fn new(idle: Duration) -> Activity {
        Activity {
            last: Mutex::new(Instant::now()),
            idle,
        }
    }

    /// Records activity.
    pub(super) fn touch(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Waits until the connection has been idle for too long.
    pub(super) async fn expired(&self) {
        if self.idle.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let due = *self.last.lock() + self.idle;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_expires_after_its_idle_time_or_never() {
        let (activity, began) = (Activity::new(Duration::from_secs(60)), Instant::now());
        tokio::time::advance(Duration::from_secs(30)).await;
        activity.touch();
        activity.expired().await;
        assert_eq!(began.elapsed(), Duration::from_secs(90));
        let endless = Activity::new(Duration::ZERO);
        let waited = timeout(10 * STREAMING_IDLE_TIMEOUT, endless.expired()).await;
        assert!(waited.is_err());
    }
}
