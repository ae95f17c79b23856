//! The scheduler against a real API server in the same process, on paused time.

mod device;
mod device_rules;
mod extender;
mod extender_tls;
mod fixtures;
mod framework;
mod messages;
mod metrics;
mod preemption;
mod profile;
mod requeue;
mod scheduling;
mod volume;
