//! The CPU profile: which functions run, looked at 100 times in a second of CPU time.
//!
//! The timer, the signal handler and the unwinder are those of the `pprof` crate. A process has one profiler: a second profile at the
//! same time is an error. Stacks are unwound by `framehop`, which neither allocates nor locks in a signal handler and reads no memory
//! that cannot be read; libgcc's unwinder crashed when it was interrupted by the signal.

use std::ffi::c_void;

use nix::sys::signal::{Signal, raise};
use parking_lot::Mutex;
use pprof::{Error, Frames, ProfilerGuard, ProfilerGuardBuilder};

use super::encode::Encoder;

/// Go: samples per second of CPU time (runtime/pprof).
const FREQUENCY: i32 = 100;

/// Whether the unwinder has been made.
static HAS_UNWINDER: Mutex<bool> = Mutex::new(false);

/// A profile that is being recorded.
pub(super) struct CpuProfiler(ProfilerGuard<'static>);

impl CpuProfiler {
    /// Starts to record. The error is worded as Go words it.
    pub(super) fn start() -> Result<CpuProfiler, String> {
        let mut has_unwinder = HAS_UNWINDER.lock();
        let guard = match *has_unwinder {
            true => Ok(()),
            false => make_unwinder(),
        }
        .and_then(|()| {
            *has_unwinder = true;
            profile(FREQUENCY)
        });
        guard.map(CpuProfiler).map_err(|error| match error {
            Error::Running => "cpu profiling already in use".into(),
            error => error.to_string(),
        })
    }

    /// What was recorded: a compressed message of pprof's.
    pub(super) fn stop(self) -> Result<Vec<u8>, String> {
        let report = self.0.report().build_unresolved();
        // Names are looked up when nothing is recorded any more.
        drop(self);
        let report = report.map_err(|error| error.to_string())?;
        let mut encoder = Encoder::new(i64::from(FREQUENCY));
        for (frames, count) in report.data {
            encoder.sample(&Frames::from(frames), count as i64);
        }
        encoder
            .finish(report.timing.start_time, report.timing.duration)
            .map_err(|error| error.to_string())
    }
}

fn profile(frequency: i32) -> Result<ProfilerGuard<'static>, Error> {
    ProfilerGuardBuilder::default().frequency(frequency).build()
}

/// The crate makes its unwinder when it handles the first signal, and allocates then. So the first signal is sent by this thread to
/// itself, while it allocates nothing; the timer's would come a second of CPU time later.
fn make_unwinder() -> Result<(), Error> {
    let _profile = profile(1)?;
    raise(Signal::SIGPROF).map_err(|error| Error::IoError(error.into()))
}

/// The name of the function at an address of this process.
pub(super) fn function_name(address: usize) -> Option<String> {
    let mut name = None;
    backtrace::resolve(address as *mut c_void, |symbol| {
        // The last one is not inlined.
        name = symbol.name().map(|found| format!("{found:#}"));
    });
    name
}
