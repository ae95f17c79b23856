//! Logs of real containers: files in the format of the container runtime interface, a line of which
//! is `TIME STREAM TAGS TEXT`; the tag `P` says that the line goes on in the next one.
//!
//! A file is read in pieces, so that a log of any size costs little memory. The files of a log that
//! was rotated are read one after the other, whether it is followed or not.
//!
//! Invariant: a line is printed once, even if the log is rotated while it is read.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use mizzen_value::time::to_unix;
use tokio::task::spawn_blocking;

use super::container_logs::PodLogOptions;
use crate::cri::log_rotation::{self, rotated};
use crate::moment::Moment;

/// The size of a piece.
const PIECE: usize = 128 * 1024;
/// How often files are listed anew if they are rotated meanwhile.
const TRIES: usize = 5;

/// A log, and what was read of it.
pub(super) struct LogFile {
    source: Option<LogSource>,
    printer: FilePrinter,
}

/// The files of a log, in the order in which they are read.
struct LogSource {
    path: PathBuf,
    /// Rotated files that were not read yet.
    rotated: VecDeque<PathBuf>,
    /// The rotated file that is being read.
    old: Option<Box<dyn Read + Send + Sync>>,
    /// The lines at its start that are left out.
    n_skipped: usize,
    /// The file to which the container writes, or wrote when it was opened.
    current: Option<File>,
    /// The newest rotated file when it was opened.
    last_rotated: Option<PathBuf>,
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
    /// Opens a log at its first line, or at the first of the last ones. A log that does not exist
    /// is empty.
    pub(super) async fn open(
        path: &Path,
        options: PodLogOptions,
        now: Moment,
    ) -> io::Result<LogFile> {
        let (path, tail) = (path.to_owned(), options.tail());
        let opened = spawn_blocking(move || LogSource::open(path, tail));
        Ok(LogFile {
            source: Some(opened.await.map_err(io::Error::other)??),
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

    /// The next lines; `None` at the end of the log, which may still grow.
    pub(super) async fn read(&mut self) -> io::Result<Option<Bytes>> {
        while let Some(mut source) = self.source.take() {
            let read = spawn_blocking(move || {
                let piece = source.read_piece();
                (source, piece)
            });
            let (source, piece) = read.await.map_err(io::Error::other)?;
            self.source = Some(source);
            let piece = piece?;
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

impl LogSource {
    fn open(path: PathBuf, tail: Option<usize>) -> io::Result<LogSource> {
        let mut source = LogSource {
            path,
            rotated: VecDeque::new(),
            old: None,
            n_skipped: 0,
            current: None,
            last_rotated: None,
        };
        let mut rotated = source.open_current()?;
        if let Some(n_lines) = tail {
            let (start, mut n_found) = match &mut source.current {
                Some(file) => find_tail(file, n_lines)?,
                None => (0, 0),
            };
            if let Some(file) = &mut source.current {
                file.seek(SeekFrom::Start(start))?;
            }
            // The rest is in the newest of the rotated files.
            let mut first = rotated.len();
            while n_found < n_lines && first > 0 {
                first -= 1;
                n_found += open_rotated(&rotated[first])?.map_or(Ok(0), count_lines)?;
            }
            source.n_skipped = n_found.saturating_sub(n_lines);
            rotated.drain(..first);
        }
        source.rotated = rotated.into();
        Ok(source)
    }

    /// Opens the file to which the container writes, and returns the rotated files before it.
    fn open_current(&mut self) -> io::Result<Vec<PathBuf>> {
        let mut rotated = rotated(&self.path)?;
        for _ in 0..TRIES {
            self.current = open_existing(&self.path)?;
            let now = log_rotation::rotated(&self.path)?;
            if now.last().map(|file| plain(file)) == rotated.last().map(|file| plain(file)) {
                break;
            }
            // It was rotated between the list and the opening.
            rotated = now;
        }
        self.last_rotated = rotated.last().map(|file| plain(file));
        Ok(rotated)
    }

    /// The next bytes; none at the end of the log.
    fn read_piece(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if self.old.is_none()
                && let Some(file) = self.rotated.pop_front()
            {
                self.old = open_rotated(&file)?;
                continue;
            }
            if let Some(old) = &mut self.old {
                match read_some(old)? {
                    piece if piece.is_empty() => (self.old, self.n_skipped) = (None, 0),
                    piece => {
                        let rest = skip_lines(&piece, &mut self.n_skipped);
                        if !rest.is_empty() {
                            return Ok(rest.to_vec());
                        }
                    }
                }
                continue;
            }
            // The end of a file counts only if it was rotated before it was read.
            let is_rotated = self.is_rotated()?;
            if let Some(file) = &mut self.current {
                let piece = read_some(file)?;
                if !piece.is_empty() {
                    return Ok(piece);
                }
            }
            if !is_rotated {
                return Ok(Vec::new());
            }
            self.follow_rotation()?;
        }
    }

    /// Whether the container writes to another file than the one that is read.
    fn is_rotated(&self) -> io::Result<bool> {
        let there = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        let Some(file) = &self.current else {
            return Ok(true);
        };
        let read = file.metadata()?;
        Ok((there.dev(), there.ino()) != (read.dev(), read.ino()))
    }

    /// Goes on with what was written after the file that was read to its end.
    fn follow_rotation(&mut self) -> io::Result<()> {
        let (had_file, before) = (self.current.is_some(), self.last_rotated.take());
        let rotated = self.open_current()?.into_iter();
        let later =
            rotated.filter(|file| before.as_ref().is_none_or(|before| plain(file) > *before));
        // The first of them is the file that was read.
        self.rotated = later.skip(usize::from(had_file)).collect();
        Ok(())
    }
}

/// The path of a rotated file before it was compressed.
fn plain(path: &Path) -> PathBuf {
    match path.extension() {
        Some(extension) if extension == "gz" => path.with_extension(""),
        _ => path.to_owned(),
    }
}

fn open_existing(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

/// Opens a rotated file, which may have been compressed meanwhile, or removed.
fn open_rotated(path: &Path) -> io::Result<Option<Box<dyn Read + Send + Sync>>> {
    let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
    if !is_compressed && let Some(file) = open_existing(path)? {
        return Ok(Some(Box::new(file)));
    }
    let compressed = match is_compressed {
        true => path.to_owned(),
        false => PathBuf::from(format!("{}.gz", path.display())),
    };
    let file = open_existing(&compressed)?;
    Ok(file.map(|file| Box::new(GzDecoder::new(file)) as Box<dyn Read + Send + Sync>))
}

fn read_some(from: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; PIECE];
    let n_read = from.read(&mut piece)?;
    piece.truncate(n_read);
    Ok(piece)
}

fn count_lines(mut from: Box<dyn Read + Send + Sync>) -> io::Result<usize> {
    let mut n_lines = 0;
    loop {
        let piece = read_some(&mut from)?;
        if piece.is_empty() {
            return Ok(n_lines);
        }
        n_lines += piece.iter().filter(|byte| **byte == b'\n').count();
    }
}

/// What follows the first lines, whose number is counted down.
fn skip_lines<'a>(mut piece: &'a [u8], n_lines: &mut usize) -> &'a [u8] {
    while *n_lines > 0 {
        let Some(end) = piece.iter().position(|byte| *byte == b'\n') else {
            return &[];
        };
        piece = &piece[end + 1..];
        *n_lines -= 1;
    }
    piece
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

/// Where the last `n_lines` lines begin, and how many there are.
fn find_tail(file: &mut File, n_lines: usize) -> io::Result<(u64, usize)> {
    let mut end = file.metadata()?.len();
    if n_lines == 0 {
        return Ok((end, 0));
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
                return Ok((place, n_found));
            }
        }
        end = start;
    }
    // The first line has no end of another one before it.
    Ok((0, n_found + usize::from(length > 0)))
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

    fn write(path: &Path, lines: &[&str]) {
        let line = |text: &&str| format!("2023-11-14T22:13:20Z stdout F {text}\n");
        std::fs::write(path, lines.iter().map(line).collect::<String>()).unwrap();
    }

    fn write_compressed(path: &Path, lines: &[&str]) {
        use std::io::Write as _;

        write(path, lines);
        let text = std::fs::read(path).unwrap();
        let file = File::create(path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(&text).unwrap();
        encoder.finish().unwrap();
    }

    async fn rest(log: &mut LogFile) -> String {
        let mut all = Vec::new();
        while let Some(piece) = log.read().await.unwrap() {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).unwrap()
    }

    async fn open(path: &Path, query: &str) -> LogFile {
        let options = PodLogOptions::parse(query).unwrap();
        LogFile::open(path, options, Moment::default())
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn the_files_of_a_rotated_log_are_read_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        write_compressed(&dir.path().join("0.log.20240101-000000.gz"), &["a", "b"]);
        write(&dir.path().join("0.log.20240102-000000"), &["c", "d"]);
        write(&dir.path().join("0.log.20240102-000000.tmp"), &["?"]);
        write(&path, &["e"]);
        for (query, expected) in [
            ("", "a\nb\nc\nd\ne\n"),
            ("tailLines=1", "e\n"),
            ("tailLines=2", "d\ne\n"),
            ("tailLines=3", "c\nd\ne\n"),
            ("tailLines=4", "b\nc\nd\ne\n"),
            ("tailLines=9", "a\nb\nc\nd\ne\n"),
            ("tailLines=0", ""),
        ] {
            assert_eq!(
                rest(&mut open(&path, query).await).await,
                expected,
                "{query}"
            );
        }
    }

    #[tokio::test]
    async fn a_log_is_followed_while_it_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let rotate = |name: &str| std::fs::rename(&path, dir.path().join(name)).unwrap();
        write(&path, &["a"]);
        let mut log = open(&path, "follow=true").await;
        assert_eq!(rest(&mut log).await, "a\n");
        // Between renaming and reopening there is no file.
        rotate("0.log.20240101-000000");
        assert_eq!(rest(&mut log).await, "");
        write(&path, &["b"]);
        assert_eq!(rest(&mut log).await, "b\n");
        // A slow reader finds several rotations, and compressed files.
        rotate("0.log.20240102-000000");
        write_compressed(&dir.path().join("0.log.20240103-000000.gz"), &["c", "d"]);
        write(&path, &["e"]);
        assert_eq!(rest(&mut log).await, "c\nd\ne\n");
        assert_eq!(rest(&mut log).await, "");
    }
}
