//! A progress line on the terminal. Nothing is written if standard error is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

const REFRESH: Duration = Duration::from_millis(200);

/// Draws progress lines on a terminal.
pub(crate) struct ProgressDisplay {
    terminal: bool,
}

impl ProgressDisplay {
    pub(super) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Draws a line until it is dropped. `total` is the number of ticks, if known.
    pub(super) fn line(&self, label: &str, total: Option<u64>) -> ProgressLine {
        let ticks = Arc::new(AtomicU64::new(0));
        let (label, drawn) = (label.to_owned(), ticks.clone());
        let total = total.map_or(String::new(), |total| format!(" of {total}"));
        let draw = async move {
            let begin = Instant::now();
            loop {
                let done = drawn.load(Ordering::Relaxed);
                let seconds = begin.elapsed().as_secs_f64();
                replace_line(&format!("{label}: {done}{total}, {seconds:.1} s"));
                tokio::time::sleep(REFRESH).await;
            }
        };
        let task = self.terminal.then(|| tokio::spawn(draw).abort_handle());
        ProgressLine { ticks, task }
    }
}

/// A line that is drawn until it is dropped.
pub(crate) struct ProgressLine {
    pub ticks: Arc<AtomicU64>,
    task: Option<AbortHandle>,
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
            replace_line("");
        }
    }
}

/// Replaces the current line of the terminal. Errors are ignored: the terminal may be gone.
fn replace_line(text: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
    let _ = io::stderr().flush();
}
