//! What may an upgraded connection cost, and when does it end by itself?

use parking_lot::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The limits of one connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long a connection may carry nothing. Kubernetes: `streamingConnectionIdleTimeout` of the kubelet.
    pub idle: Duration,
    /// How long a client may take to open the streams that belong together. Kubernetes: the kubelet's.
    pub creation: Duration,
    /// The streams that may be open at a time.
    pub streams: usize,
    /// The size of a control frame of SPDY. Frames of data are handed on in pieces.
    pub control_frame: usize,
    /// The size of a message over WebSocket.
    pub message: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            idle: Duration::from_secs(4 * 3_600),
            creation: Duration::from_secs(30),
            streams: 256,
            control_frame: 64 * 1024,
            message: 2 * 1024 * 1024,
        }
    }
}

/// When a connection carried something last.
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

    /// Something was carried.
    pub(super) fn touch(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Waits until the connection has been idle for too long.
    pub(super) async fn expired(&self) {
        loop {
            let due = *self.last.lock() + self.idle;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}
