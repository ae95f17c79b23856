//! A CPU profile as pprof's message `Profile`, compressed: github.com/google/pprof/proto/profile.proto.
//!
//! Strings, functions and locations are written when they are first used, and referred to by number from then on.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use mizzen_object::proto::wire::{put_bytes, put_int, put_message};
use pprof::{Frames, Symbol};

const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING: u32 = 6;
const TIME_NANOS: u32 = 9;
const DURATION_NANOS: u32 = 10;
const PERIOD_TYPE: u32 = 11;
const PERIOD: u32 = 12;

/// A profile that is being written.
#[derive(Default)]
pub(super) struct Encoder {
    out: Vec<u8>,
    strings: HashMap<String, i64>,
    /// By name and file.
    functions: HashMap<(i64, i64), i64>,
    /// By function and line, the inlined functions first.
    locations: HashMap<Vec<(i64, i64)>, i64>,
    /// Nanoseconds of CPU time between two samples.
    period: i64,
}

impl Encoder {
    /// A profile with this many samples per second of CPU time.
    pub(super) fn new(frequency: i64) -> Encoder {
        let mut encoder = Encoder {
            period: 1_000_000_000 / frequency,
            ..Encoder::default()
        };
        // String 0 must be empty.
        encoder.string("");
        encoder.value_type(SAMPLE_TYPE, "samples", "count");
        encoder.value_type(SAMPLE_TYPE, "cpu", "nanoseconds");
        encoder.value_type(PERIOD_TYPE, "cpu", "nanoseconds");
        put_int(PERIOD, encoder.period, &mut encoder.out);
        encoder
    }

    /// Adds a stack that was sampled `count` times.
    pub(super) fn sample(&mut self, stack: &Frames, count: i64) {
        let locations: Vec<i64> = stack
            .frames
            .iter()
            .map(|symbols| self.location(symbols))
            .collect();
        let (key, thread) = (
            self.string("thread"),
            self.string(&stack.thread_name_or_id()),
        );
        let values = [count, count * self.period];
        put_message(SAMPLE, &mut self.out, |out| {
            locations.iter().for_each(|id| put_int(1, *id, out));
            values.iter().for_each(|value| put_int(2, *value, out));
            put_message(3, out, |out| {
                put_int(1, key, out);
                put_int(2, thread, out);
            });
        });
    }

    /// The compressed message.
    pub(super) fn finish(mut self, start: SystemTime, duration: Duration) -> io::Result<Vec<u8>> {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let since_epoch = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        put_int(TIME_NANOS, nanos(since_epoch), &mut self.out);
        put_int(DURATION_NANOS, nanos(duration), &mut self.out);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&self.out)?;
        gzip.finish()
    }

    fn value_type(&mut self, field: u32, name: &str, unit: &str) {
        let (name, unit) = (self.string(name), self.string(unit));
        put_message(field, &mut self.out, |out| {
            put_int(1, name, out);
            put_int(2, unit, out);
        });
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.strings.len() as i64;
        put_bytes(STRING, text.as_bytes(), &mut self.out);
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn function(&mut self, symbol: &Symbol) -> i64 {
        let name = self.string(&symbol.name());
        let file = match &symbol.filename {
            Some(file) => self.string(&file.to_string_lossy()),
            None => 0,
        };
        let next = self.functions.len() as i64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            put_message(FUNCTION, &mut self.out, |out| {
                put_int(1, id, out);
                // Without a system name a name counts as demangled, and pprof does not take what is in `<>` for C++'s templates.
                put_int(2, name, out);
                put_int(4, file, out);
            });
        }
        id
    }

    fn location(&mut self, symbols: &[Symbol]) -> i64 {
        let lines: Vec<(i64, i64)> = symbols
            .iter()
            .map(|symbol| (self.function(symbol), i64::from(symbol.lineno())))
            .collect();
        let next = self.locations.len() as i64 + 1;
        let id = *self.locations.entry(lines.clone()).or_insert(next);
        if id == next {
            put_message(LOCATION, &mut self.out, |out| {
                put_int(1, id, out);
                for (function, line) in lines {
                    put_message(4, out, |out| {
                        put_int(1, function, out);
                        put_int(2, line, out);
                    });
                }
            });
        }
        id
    }
}
