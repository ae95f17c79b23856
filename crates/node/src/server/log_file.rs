//! Logs of real containers: files in the format of the container runtime interface, a line of which
//! is `TIME STREAM TAGS TEXT`; the tag `P` says that the line goes on in the next one.
//!
//! A file is read in pieces, so that a log of any size costs little memory.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use mizzen_value::time::to_unix;
use tokio::task::spawn_blocking;

use super::container_logs::PodLogOptions;
use crate::moment::Moment;

/// The size of a piece.
const PIECE: usize = 128 * 1024;

/// A log file, and what was read of it.
pub(super) struct LogFile {
    file: Option<File>,
    printer: FilePrinter,
}

struct FilePrinter {
    options: PodLogOptions,
    /// Earlier lines are left out.
    from: Duration,
    /// The bytes that may still be printed.
    left: usize,
    /// The start of a line whose end was not read.
    rest: Vec<u8>,
    /// Whether the last line goes on.
    is_partial: bool,
}

impl LogFile {
    /// Opens a log at its first line, or at the first of the last ones. A file that does not exist
    /// is empty.
    pub(super) async fn open(
        path: &Path,
        options: PodLogOptions,
        now: Moment,
    ) -> io::Result<LogFile> {
        let (path, tail) = (path.to_owned(), options.tail());
        let opened = spawn_blocking(move || -> io::Result<Option<File>> {
            let mut file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
            if let Some(n_lines) = tail {
                let start = find_tail(&mut file, n_lines)?;
                file.seek(SeekFrom::Start(start))?;
            }
            Ok(Some(file))
        });
        Ok(LogFile {
            file: opened.await.map_err(io::Error::other)??,
            printer: FilePrinter {
                from: options.from(now),
                left: options.limit(),
                options,
                rest: Vec::new(),
                is_partial: false,
            },
        })
    }

    /// Whether the byte limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.printer.left == 0
    }

    /// The next lines; `None` at the end of the file, which may still grow.
    pub(super) async fn read(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(mut file) = self.file.take() {
            let read = spawn_blocking(move || {
                let mut piece = vec![0; PIECE];
                let n_read = file.read(&mut piece)?;
                piece.truncate(n_read);
                Ok::<_, io::Error>((file, piece))
            });
            let (file, piece) = read.await.map_err(io::Error::other)??;
            self.file = Some(file);
            if piece.is_empty() || self.is_full() {
                return Ok(None);
            }
            let text = self.printer.print(&piece);
            if !text.is_empty() {
                return Ok(Some(text.into()));
            }
        }
        Ok(None)
    }
}

impl FilePrinter {
    fn print(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut read = std::mem::take(&mut self.rest);
        read.extend_from_slice(piece);
        let mut text = Vec::new();
        let mut lines = read.as_slice();
        while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
            self.print_line(&lines[..end], &mut text);
            lines = &lines[end + 1..];
        }
        self.rest = lines.to_vec();
        text.truncate(self.left);
        self.left -= text.len();
        text
    }

    fn print_line(&mut self, line: &[u8], text: &mut Vec<u8>) {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (Some(time), Some(_), Some(tags)) = (parts.next(), parts.next(), parts.next()) else {
            return;
        };
        let content = parts.next().unwrap_or_default();
        let continues = std::mem::replace(&mut self.is_partial, tags.starts_with(b"P"));
        let time = String::from_utf8_lossy(time);
        if wall(&time).is_none_or(|at| at < self.from) {
            return;
        }
        if self.options.has_timestamps() && !continues {
            text.extend_from_slice(time.as_bytes());
            text.push(b' ');
        }
        text.extend_from_slice(content);
        if !self.is_partial {
            text.push(b'\n');
        }
    }
}

/// The time since 1970 of a timestamp with a fraction.
fn wall(text: &str) -> Option<Duration> {
    let (whole, nanos) = match text.split_once('.') {
        None => (text.to_owned(), 0),
        Some((seconds, rest)) => {
            let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, zone) = rest.split_at(n_digits);
            let nanos = format!("{digits:0<9}").get(..9)?.parse().ok()?;
            (format!("{seconds}{zone}"), nanos)
        }
    };
    let seconds = u64::try_from(to_unix(&whole)?).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// Where the last `n_lines` lines begin.
fn find_tail(file: &mut File, n_lines: usize) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    if n_lines == 0 {
        return Ok(end);
    }
    // The end of the last line is not the start of another one.
    let mut n_found = 0;
    let length = end;
    let mut piece = vec![0; PIECE];
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        let size = (end - start) as usize;
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut piece[..size])?;
        for at in (0..size).rev().filter(|at| piece[*at] == b'\n') {
            let place = start + at as u64 + 1;
            if place == length {
                continue;
            }
            n_found += 1;
            if n_found == n_lines {
                return Ok(place);
            }
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2023-11-14T22:13:20.5Z stdout F one\n\
                       2023-11-14T22:13:21.000000001Z stderr P tw\n\
                       2023-11-14T22:13:21.2Z stderr F o\n\
                       2023-11-14T23:13:22+01:00 stdout F three  words\n";

    async fn read(query: &str, text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, text).unwrap();
        let options = PodLogOptions::parse(query).unwrap();
        let mut log = LogFile::open(&path, options, Moment::from_secs(1_700_000_003))
            .await
            .unwrap();
        let mut all = Vec::new();
        while let Some(piece) = log.read().await.unwrap() {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn lines_are_joined_and_selected_by_the_options() {
        for (query, expected) in [
            ("", "one\ntwo\nthree  words\n"),
            ("tailLines=1", "three  words\n"),
            ("tailLines=0", ""),
            ("tailLines=9", "one\ntwo\nthree  words\n"),
            ("sinceSeconds=1", "three  words\n"),
            ("sinceTime=2023-11-14T22%3A13%3A21Z", "two\nthree  words\n"),
            ("limitBytes=5", "one\nt"),
            (
                "timestamps=true&sinceSeconds=2",
                "2023-11-14T22:13:21.000000001Z two\n2023-11-14T23:13:22+01:00 three  words\n",
            ),
        ] {
            assert_eq!(read(query, LOG).await, expected, "{query}");
        }
    }

    #[tokio::test]
    async fn a_long_log_is_read_in_pieces_and_its_tail_is_found() {
        let line = |n: usize| format!("2023-11-14T22:13:20Z stdout F {n} {}\n", "x".repeat(100));
        let text: String = (0..5000).map(line).collect();
        assert_eq!(read("", &text).await.lines().count(), 5000);
        let tail = read("tailLines=3000", &text).await;
        assert_eq!(tail.lines().count(), 3000);
        assert!(tail.starts_with("2000 "));
    }

    #[tokio::test]
    async fn a_line_is_printed_once_it_is_whole() {
        assert_eq!(read("", "2023-11-14T22:13:20Z stdout F on").await, "");
        let missing = LogFile::open(
            Path::new("/nowhere"),
            PodLogOptions::default(),
            Moment::default(),
        );
        assert_eq!(missing.await.unwrap().read().await.unwrap(), None);
    }
}
