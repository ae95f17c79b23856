//! How a program of a test ends.

use std::fmt::Display;

/// What a program returns: nothing, or a result.
///
/// ```
/// use mizzen_testing::ProgramOutcome as _;
///
/// assert_eq!(().failure(), None);
/// assert_eq!(Err("the lease is lost").failure().as_deref(), Some("the lease is lost"));
/// ```
pub trait ProgramOutcome {
    /// The error, if it failed.
    fn failure(self) -> Option<String>;
}

impl ProgramOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> ProgramOutcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}
