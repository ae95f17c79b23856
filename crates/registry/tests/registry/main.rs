//! The life of objects, verb by verb, each scenario on a store in memory and on one on disk.

mod convert;
mod corrupt;
mod create;
mod delete;
mod list;
mod rig;
mod storage_codec;
mod update;
mod watch;
