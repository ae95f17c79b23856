//! CPU profiles: samples of stacks, 100 per second of CPU time.
//!
//! The timer, the signal handler and the unwinder are those of the `pprof` crate. A process has one profiler: a second
//! concurrent profile is an error. `framehop` unwinds stacks: it neither allocates nor locks in a signal handler and reads
//! only mapped memory; libgcc's unwinder crashed when the signal interrupted it.

use std::ffi::c_void;

use nix::sys::signal::{Signal, raise};
use parking_lot::Mutex;
use pprof::{Error, Frames, ProfilerGuard, ProfilerGuardBuilder};

use super::encode::Encoder;

/// Go: samples per second of CPU time (runtime/pprof).
const FREQUENCY: i32 = 100;

/// Whether the unwinder was created.
static HAS_UNWINDER: Mutex<bool> = Mutex::new(false);

/// A profile that is being recorded.
pub(super) struct CpuProfiler(ProfilerGuard<'static>);

impl CpuProfiler {
    /// Starts recording. The error has Go's message.
    pub(super) fn start() -> Result<CpuProfiler, String> {
        let mut has_unwinder = HAS_UNWINDER.lock();
        let guard = match *has_unwinder {
            true => Ok(()),
            // The crate creates its unwinder in the handler of the first signal, and allocates there. So this thread sends
            // itself the first signal while it does not allocate.
            false => profile(1).and_then(|_profile| {
                raise(Signal::SIGPROF).map_err(|error| Error::IoError(error.into()))
            }),
        };
        let guard = guard.and_then(|()| {
            *has_unwinder = true;
            profile(FREQUENCY)
        });
        guard.map(CpuProfiler).map_err(|error| match error {
            Error::Running => "cpu profiling already in use".into(),
            error => error.to_string(),
        })
    }

    /// The recorded profile: a compressed `Profile` message.
    pub(super) fn stop(self) -> Result<Vec<u8>, String> {
        let report = self.0.report().build_unresolved();
        // Symbols are looked up after recording.
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

/// The name of the function at an address of this process.
pub(super) fn function_name(address: usize) -> Option<String> {
    let mut name = None;
    backtrace::resolve(address as *mut c_void, |symbol| {
        // The last symbol is not inlined.
        name = symbol.name().map(|found| format!("{found:#}"));
    });
    name
}
