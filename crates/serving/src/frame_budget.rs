//! A budget for HTTP/2 frames without content.
//!
//! PRIORITY, WINDOW_UPDATE, RST_STREAM, GOAWAY, empty DATA and frames of unknown types cost a few bytes each, and the limits
//! on requests do not count them. A connection may send [`BURST`] of them. It earns more by requests, by bytes that the
//! server writes to it, and by time. `h2` limits HEADERS and CONTINUATION; after a PING or SETTINGS it reads nothing more
//! until the reply has been sent.
//!
//! Frames are counted by their headers as bytes pass; the clock is read only when the budget is used up.

use std::io;

use tokio::time::Instant;

use crate::inspect::InspectBytes;

/// How many frames without content are free.
const BURST: u64 = 1_000;
/// The most that can be earned at a time. A client may be behind by what the sockets buffer, some megabytes of short events.
const MAX_EARNED: u64 = 100_000;
/// How many frames a request earns: its priority, its windows, its end.
const PER_REQUEST: u64 = 10;
/// How many written bytes earn one frame. Some clients acknowledge every DATA frame twice, for its stream and for the
/// connection, and no watch event is shorter than 128 bytes.
const BYTES_PER_FRAME: u64 = 64;
/// How many frames a second earns.
const PER_SECOND: u64 = 10;

/// The length of the connection preface.
const PREFACE: usize = 24;
const HEADER: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// The frames of one connection. The budget begins when it is made.
pub struct FrameBudget {
    /// How many bytes are left before the next frame header.
    skip: usize,
    /// The part of the header that has arrived.
    header: [u8; HEADER],
    n_header: usize,
    /// How many frames are left.
    left: u64,
    /// What the connection has earned since the last refill.
    n_requests: u64,
    n_written: u64,
    since: Instant,
}

impl Default for FrameBudget {
    fn default() -> FrameBudget {
        FrameBudget {
            skip: PREFACE,
            header: [0; HEADER],
            n_header: 0,
            left: BURST,
            n_requests: 0,
            n_written: 0,
            since: Instant::now(),
        }
    }
}

impl FrameBudget {
    /// Counts a frame. Returns false if the budget is exceeded.
    fn count(&mut self, length: usize, kind: u8, flags: u8) -> bool {
        let is_free = match kind {
            HEADERS => {
                self.n_requests += 1;
                true
            }
            DATA => length > 0 || flags & END_STREAM != 0,
            SETTINGS | PING | CONTINUATION => true,
            _ => false,
        };
        if is_free {
            return true;
        }
        if self.left == 0 {
            self.refill();
        }
        let may_go_on = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may_go_on
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let earned = self.n_requests * PER_REQUEST
            + self.n_written / BYTES_PER_FRAME
            + (now - self.since).as_secs() * PER_SECOND;
        self.left = earned.min(MAX_EARNED);
        (self.n_requests, self.n_written, self.since) = (0, 0, now);
    }
}

impl InspectBytes for FrameBudget {
    fn received(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = (HEADER - self.n_header).min(bytes.len());
            self.header[self.n_header..self.n_header + taken].copy_from_slice(&bytes[..taken]);
            self.n_header += taken;
            bytes = &bytes[taken..];
            if self.n_header < HEADER {
                return Ok(());
            }
            self.n_header = 0;
            let [high, middle, low, kind, flags, ..] = self.header;
            self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
            if !self.count(self.skip, kind, flags) {
                return Err(io::Error::other("too many HTTP/2 frames without content"));
            }
        }
    }

    fn written(&mut self, n_bytes: usize) {
        self.n_written += n_bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PRIORITY: u8 = 2;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, 1]);
        bytes.extend(payload);
        bytes
    }

    fn begun() -> FrameBudget {
        let mut budget = FrameBudget::default();
        budget
            .received(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        budget
    }

    /// How many of these frames are taken, at most 10,000.
    fn taken(budget: &mut FrameBudget, frame: &[u8]) -> usize {
        (0..10_000)
            .take_while(|_| budget.received(frame).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn only_frames_without_content_are_limited() {
        let nothing = [
            frame(PRIORITY, 0, &[0; 5]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
            frame(3, 0, &[0; 4]),
            frame(7, 0, &[0; 8]),
            frame(0xbe, 0, b"anything"),
            frame(DATA, 0, b""),
        ];
        for frame in nothing {
            assert_eq!(taken(&mut begun(), &frame), BURST as usize, "{frame:?}");
        }
        for frame in [
            frame(DATA, 0, b"content"),
            frame(DATA, END_STREAM, b""),
            frame(HEADERS, 4, b"head"),
            frame(PING, 0, &[0; 8]),
            frame(SETTINGS, 0, b""),
        ] {
            assert_eq!(taken(&mut begun(), &frame), 10_000, "{frame:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_are_found_wherever_reads_cut_them() {
        let frames = [
            frame(DATA, 0, &[WINDOW_UPDATE; 300]),
            frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]),
        ]
        .concat();
        for size in [1, 2, 7, 9, 13, 100, 1_000] {
            let mut budget = begun();
            for piece in frames.repeat(7).chunks(size) {
                budget.received(piece).unwrap();
            }
            assert_eq!(budget.left, BURST - 7, "{size}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_written_bytes_and_time_earn_more_frames() {
        let update = frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1]);
        let mut budget = begun();
        for _ in 0..20 {
            budget.received(&frame(HEADERS, 4, b"head")).unwrap();
        }
        assert_eq!(taken(&mut budget, &update), 1_200);
        let mut budget = begun();
        budget.written(64 * 300);
        assert_eq!(taken(&mut budget, &update), 1_300);
        budget.written(1 << 30);
        budget.refill();
        assert_eq!(budget.left, MAX_EARNED);
        let mut budget = begun();
        (0..BURST).for_each(|_| budget.received(&update).unwrap());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(taken(&mut budget, &update), 50);
    }
}
