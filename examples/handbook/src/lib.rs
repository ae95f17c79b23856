//! The Rust code of `docs/`, as doc tests: a page is listed here, and its `rust` blocks are compiled and run.
//!
//! `crates/cluster/tests/cluster/handbook` checks that no page with such blocks is missing.

/// Informers, indexes, work queues, conflicts.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/handbook/04-informers-and-queues.md")]
struct InformersAndQueues;

/// A cluster in a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/handbook/09-testing.md")]
struct Testing;

/// Injected and random faults.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/handbook/10-faults.md")]
struct Faults;

/// The names of client-go.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-client-go.md")]
struct FromClientGo;
