//! What containers of tests run beside busybox: servers, signals, files, memory and CPU time, of which the tests know
//! what is to be seen. The tests compile it to a static program; it has nothing but the standard library.
//!
//! | command | what it does |
//! |---|---|
//! | `http PORT` | responds to each request with its first line |
//! | `tcp PORT` | sends back what it gets |
//! | `udp PORT` | the same, by datagrams |
//! | `files FILE…` | prints the mode, the owners and the content of each file |
//! | `signals FILE` | appends the name of each signal to a file, and ends with SIGTERM |
//! | `memory MIB` | keeps so much memory in use |
//! | `cpu MILLICORES` | uses so much CPU time |

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Signals by number, as on all architectures of Linux but MIPS and SPARC.
const SIGNALS: [(i32, &str); 5] = [
    (1, "HUP"),
    (2, "INT"),
    (10, "USR1"),
    (12, "USR2"),
    (15, "TERM"),
];
const SIGTERM: i32 = 15;
/// How often signals are looked at, and what a turn of CPU usage takes.
const TURN: Duration = Duration::from_millis(20);

/// The signals that have come, as bits.
static COME: AtomicI32 = AtomicI32::new(0);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
}

extern "C" fn note_signal(number: i32) {
    COME.fetch_or(1 << number, Ordering::Relaxed);
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<u16>().expect("a number");
    match arguments[0].as_str() {
        "http" => serve(number(1), respond),
        "tcp" => serve(number(1), |stream| {
            io::copy(&mut &stream, &mut &stream).map(drop)
        }),
        "udp" => echo_datagrams(number(1)),
        "files" => arguments[1..].iter().try_for_each(|file| show(file)),
        "signals" => record_signals(&arguments[1]),
        "memory" => use_memory(number(1).into()),
        "cpu" => use_cpu(number(1).into()),
        other => panic!("no command {other:?}"),
    }
}

fn serve(port: u16, handle: fn(TcpStream) -> io::Result<()>) -> io::Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || handle(stream));
    }
    Ok(())
}

fn respond(mut stream: TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let length = first.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{first}"
    )
}

fn echo_datagrams(port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    let mut buffer = [0; 65536];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        socket.send_to(&buffer[..length], from)?;
    }
}

fn show(path: &str) -> io::Result<()> {
    let (metadata, content) = (fs::metadata(path)?, fs::read_to_string(path)?);
    let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
    println!("{path} {mode:o} {uid} {gid} {content:?}");
    Ok(())
}

fn record_signals(path: &str) -> io::Result<()> {
    for (number, _) in SIGNALS {
        // SAFETY: the handler changes an atomic number only.
        unsafe { signal(number, note_signal) };
    }
    let mut file = File::options().append(true).create(true).open(path)?;
    writeln!(file, "ready")?;
    loop {
        let come = COME.swap(0, Ordering::Relaxed);
        for (number, name) in SIGNALS {
            if come & (1 << number) != 0 {
                writeln!(file, "{name}")?;
            }
        }
        if come & (1 << SIGTERM) != 0 {
            return Ok(());
        }
        sleep(TURN);
    }
}

fn use_memory(mebibytes: usize) -> io::Result<()> {
    // No page stays zero, so that all are there.
    let memory = vec![1_u8; mebibytes << 20];
    loop {
        sleep(Duration::from_secs(3600));
        assert_eq!(memory.last(), Some(&1));
    }
}

fn use_cpu(millicores: u32) -> io::Result<()> {
    loop {
        let began = Instant::now();
        while began.elapsed() < TURN * millicores / 1000 {}
        sleep(TURN.saturating_sub(began.elapsed()));
    }
}
