//! What keeps the promises? A folder per loop: a pure plan, and a thin `reconcile` that carries it out.
//!
//! A loop reads what informers know, decides, writes through the API like any outsider, and forgets. It never asks what
//! woke it: whatever it missed, it comes to the same end.
//!
//! Invariant: nothing here reads the wall clock or draws a number; [`Context`] has the seams.

mod common;
mod context;
mod cronjob;
mod disruption;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod endpoints;
mod job;
mod run;
mod select;
mod serviceaccount;
mod services;
mod ttl_after_finished;
mod work;

pub use context::{Clients, Context, Options};
pub use run::{Handle, names, start};
pub use work::{After, Error, Reconcile, Work};

/// How a loop is set up.
type Start = fn(&Context) -> Work;

/// Every loop, by the name that upstream gives it.
const LOOPS: &[(&str, Start)] = &[
    ("cronjob-controller", cronjob::start),
    ("disruption-controller", disruption::start),
    ("endpoints-controller", endpoints::start),
    ("endpointslice-controller", endpoint_slices::start),
    ("endpointslice-mirroring-controller", endpoint_slice_mirroring::start),
    ("job-controller", job::start),
    ("serviceaccount-controller", serviceaccount::start),
    ("ttl-after-finished-controller", ttl_after_finished::start),
];
