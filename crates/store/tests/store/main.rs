//! What every store promises, whatever it keeps its data in, and what the one on disk promises beyond.

mod backup;
mod conformance;
mod damage;
mod disk;
mod encryption;
mod format;
mod full;
mod fuzz;
mod journal;
mod model;
mod rig;
mod toy;
