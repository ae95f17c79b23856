//! The parts of controllers, each by itself and all together.

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
