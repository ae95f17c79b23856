//! Tests of the controller runtime, per part and together.

mod election;
mod event;
mod fifo;
mod informer;
mod model;
mod parts;
mod protobuf;
mod queue;
mod rate_limit;
mod shared;
mod wire;
