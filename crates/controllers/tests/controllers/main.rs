//! The loops against the real server, in process, on time that only passes when everybody waits.

mod cluster;
mod serviceaccount;
