//! The scheduler against the real server, in process, on time that only passes when everybody waits.

mod cluster;
mod device;
mod device_rules;
mod extender;
mod extender_trust;
mod messages;
mod place;
mod preempt;
mod profile;
mod volume;
mod wait;
