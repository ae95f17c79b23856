//! Full buffers, and log rotation.

use std::io::Read as _;
use std::path::Path;

use mizzen_registry::Store;
use mizzen_registry::clock::{CountingRandom, VirtualClock};

use super::*;

/// 2027-01-15T08:00:00Z.
const BEGIN: i64 = 1_800_000_000;

fn registry() -> Registry {
    let store = Store::in_memory(Default::default());
    Registry::new(
        store,
        Arc::new(VirtualClock::starting_at(BEGIN)),
        Arc::new(CountingRandom::default()),
    )
}

fn log_file(path: &Path) -> LogFile {
    let batch = BatchOptions {
        buffer: 3,
        size: 1,
        wait: Duration::from_secs(30),
        throttle: None,
    };
    LogFile {
        path: path.into(),
        format: AuditLogFormat::Json,
        max_age: 0,
        max_backups: 0,
        max_size: 1,
        compress: false,
        delivery: Delivery {
            mode: DeliveryMode::Blocking,
            batch,
            truncation: None,
        },
    }
}

fn counted(counters: &AuditMetrics, plugin: &str) -> u64 {
    let mut families = mizzen_metrics::Families::default();
    counters.collect(&mut families);
    let text = families.to_string();
    let line = text
        .lines()
        .find(|line| line.contains(&format!("plugin=\"{plugin}\"")));
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_buffer_are_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut file = log_file(&path);
    file.delivery.mode = DeliveryMode::Batch;
    let counters = Arc::new(AuditMetrics::default());
    let sink = AuditSink::log(file, &registry(), &counters);
    // The sender task does not run before the test yields.
    for n in 0..5 {
        sink.deliver_in_background(format!("{n}\n").into());
    }
    assert_eq!(counted(&counters, "buffered"), 2);
    sink.close().await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n");
    sink.deliver_in_background("late\n".into());
    assert_eq!(counted(&counters, "buffered"), 3);
}

#[tokio::test(start_paused = true)]
async fn batches_are_rate_limited() {
    let mut bucket = throttle::BatchThrottle::new(Throttle {
        rate: 10.0,
        burst: 15,
    });
    let began = tokio::time::Instant::now();
    for _ in 0..15 {
        bucket.acquire().await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    for _ in 0..10 {
        bucket.acquire().await;
    }
    let took = began.elapsed();
    assert!(
        (Duration::from_millis(990)..Duration::from_millis(1020)).contains(&took),
        "{took:?}"
    );
}

/// A line of 400,000 bytes, of which a file of one megabyte holds two.
fn line(n: usize) -> Bytes {
    format!("{n}{}\n", "x".repeat(399_998)).into()
}

/// The names of all files, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Writes eight lines, with some time between each two.
async fn write(change: impl FnOnce(&mut LogFile), pause: Duration) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut file = log_file(&directory.path().join("audit.log"));
    change(&mut file);
    let counters = Arc::new(AuditMetrics::default());
    let sink = AuditSink::log(file, &registry(), &counters);
    for n in 0..8 {
        assert!(sink.deliver(line(n)).await);
        // Backups are maintained in the background.
        tokio::time::sleep(pause).await;
    }
    assert_eq!(counted(&counters, "log"), 0);
    directory
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn a_full_file_is_rotated_with_a_timestamp() {
    let directory = write(|_| {}, SECOND).await;
    let expected = [
        "audit-2027-01-15T08-00-02.000.log",
        "audit-2027-01-15T08-00-04.000.log",
        "audit-2027-01-15T08-00-06.000.log",
        "audit.log",
    ];
    assert_eq!(names(directory.path()), expected);
    let old = std::fs::read(directory.path().join(expected[1])).unwrap();
    assert_eq!((old.len(), old[0], old[400_000]), (800_000, b'2', b'3'));
}

#[tokio::test(start_paused = true)]
async fn rotated_files_of_the_same_time_have_different_names() {
    let directory = write(|_| {}, Duration::ZERO).await;
    let stamps =
        ["00.000", "00.001", "00.002"].map(|stamp| format!("audit-2027-01-15T08-00-{stamp}.log"));
    assert_eq!(names(directory.path())[..3], stamps);
}

#[tokio::test(start_paused = true)]
async fn old_files_are_removed_when_there_are_too_many() {
    let directory = write(|file| file.max_backups = 1, SECOND).await;
    assert_eq!(
        names(directory.path()),
        ["audit-2027-01-15T08-00-06.000.log", "audit.log"]
    );
}

#[tokio::test(start_paused = true)]
async fn old_files_are_removed_when_they_are_too_old() {
    let directory = write(|file| file.max_age = 3, DAY).await;
    let expected = [
        "audit-2027-01-19T08-00-00.000.log",
        "audit-2027-01-21T08-00-00.000.log",
        "audit.log",
    ];
    assert_eq!(names(directory.path()), expected);
}

#[tokio::test(start_paused = true)]
async fn old_files_are_compressed() {
    let directory = write(|file| file.compress = true, SECOND).await;
    let names = names(directory.path());
    assert_eq!(names[0], "audit-2027-01-15T08-00-02.000.log.gz");
    assert!(
        names[..3].iter().all(|name| name.ends_with(".log.gz")),
        "{names:?}"
    );
    let mut text = Vec::new();
    let file = std::fs::File::open(directory.path().join(&names[0])).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut text)
        .unwrap();
    assert_eq!(text, [line(0), line(1)].concat());
}

#[tokio::test(start_paused = true)]
async fn other_files_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        "audit-yesterday.log",
        "other-2027-01-15T08-00-02.000.log",
        "audit-2027-01-15T08-00-02.000.txt",
    ] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    let mut file = log_file(&directory.path().join("audit.log"));
    file.max_backups = 1;
    file.compress = true;
    let sink = AuditSink::log(file, &registry(), &Arc::default());
    for n in 0..8 {
        sink.deliver(line(n)).await;
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(names(directory.path()).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_exceeds_the_file_size_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let counters = Arc::new(AuditMetrics::default());
    let mut file = log_file(&directory.path().join("audit.log"));
    file.delivery.mode = DeliveryMode::BlockingStrict;
    let sink = AuditSink::log(file, &registry(), &counters);
    assert!(!sink.deliver(vec![b'x'; 1024 * 1024 + 1].into()).await);
    assert_eq!(counted(&counters, "log"), 1);
}
