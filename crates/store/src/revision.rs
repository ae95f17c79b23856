//! When something was written: one counter for the whole store.

use std::fmt;

/// A point in the store's history. Each committed transaction takes the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before everything: no transaction has it.
    pub const ZERO: Revision = Revision(0);

    /// What an empty store reports, as etcd does; its first transaction takes 2.
    pub const FIRST: Revision = Revision(1);

    /// The revision that the next transaction takes.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Revision {
    fn from(number: u64) -> Revision {
        Revision(number)
    }
}
