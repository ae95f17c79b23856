//! Tests of the controller runtime, per part and together.

mod adoption;
mod controller;
mod convert;
mod documented;
mod election;
mod event;
mod fifo;
mod informer;
mod injection;
mod manager;
mod model;
mod parts;
mod protobuf;
mod queue;
mod rate_limit;
mod shared;
mod signals;
mod webhook;
mod wire;
