//! One line on the terminal that says what is going on. Silent when nobody looks.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

const REFRESH: Duration = Duration::from_millis(200);

/// Whether to draw, decided once.
pub(crate) struct Progress {
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Draws a line until the answer is dropped. `total` is how many ticks there will be, where that is known.
    pub(super) fn line(&self, label: &str, total: Option<u64>) -> Line {
        let ticks = Arc::new(AtomicU64::new(0));
        let artist = self
            .terminal
            .then(|| tokio::spawn(draw(label.to_owned(), total, ticks.clone())).abort_handle());
        Line { ticks, artist }
    }
}

/// A line being drawn; dropping it wipes it.
pub(crate) struct Line {
    pub ticks: Arc<AtomicU64>,
    artist: Option<AbortHandle>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(artist) = &self.artist {
            artist.abort();
            show("");
        }
    }
}

async fn draw(label: String, total: Option<u64>, ticks: Arc<AtomicU64>) {
    let begin = Instant::now();
    loop {
        let done = ticks.load(Ordering::Relaxed);
        let of = total
            .map(|total| format!(" of {total}"))
            .unwrap_or_default();
        show(&format!(
            "{label}: {done}{of}, {:.1} s",
            begin.elapsed().as_secs_f64()
        ));
        tokio::time::sleep(REFRESH).await;
    }
}

/// Replaces the terminal's current line. Nobody minds if the terminal is gone.
fn show(text: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
    let _ = io::stderr().flush();
}
