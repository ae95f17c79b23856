//! How do I talk to a Kubernetes API server and react to what it says? The parts that every controller is
//! made of, each usable alone, on the `kube` crate's client.
//!
//! ```no_run
//! # async fn print_pods(client: kube::Client) {
//! use mizzen_sdk::Object;
//! use mizzen_sdk::informer::{Event, Informer};
//! use mizzen_sdk::resource::PODS;
//! use mizzen_sdk::watch::ListWatch;
//!
//! let pods: Informer<Object> = Informer::new(ListWatch::at(client, PODS.path("default")));
//! pods.add_handler(|event: Event<Object>| println!("{}", event.key()));
//! pods.run().await;
//! # }
//! ```
//!
//! | part | the question it answers |
//! |---|---|
//! | [`watch`] | How does one follow a kind, whatever happens? |
//! | [`fifo`] | What happened, object by object? |
//! | [`cache`] | What is known of the objects of a kind? |
//! | [`informer`] | How do many follow a kind by one watch? |
//! | [`queue`] | What is to be done next, each thing once? |
//! | [`Object`], [`resource`], [`api`] | How are objects of any kind read and written? |
//! | [`yaml`] | How are objects read from files? |
//! | [`protobuf`] | How does a client speak protobuf? |
//! | [`kubeconfig`] | How does a client reach the server that a file names? |
//! | [`rate_limit`] | How many requests a second does a client send? |
//! | [`expectations`] | Has the cache seen what I did? |
//! | [`write`](mod@write) | How does one write what others write, too? |
//! | [`owner`], [`condition`] | Whose is it, what holds it, what does its status say? |
//! | [`event`] | How do people hear what a controller did? |
//! | [`election`] | Who of several leads? |
//! | [`discover`] | Which kinds does a server have, and what are they called? |
//! | [`timeline`] | How long ago was that, whatever the wall clock did since? |
//! | [`metrics`] | How are the parts doing? |
//! | [`failure_log`] | Which failures of a loop are logged? |
//!
//! Invariant: nothing here knows a server; what works with ours works with any.

pub mod api;
pub mod cache;
pub mod condition;
pub mod discover;
pub mod election;
pub mod event;
pub mod expectations;
pub mod failure_log;
pub mod fifo;
pub mod informer;
mod key;
pub mod kubeconfig;
mod object;
pub mod owner;
pub mod protobuf;
pub mod queue;
pub mod rate_limit;
pub mod resource;
pub mod seam;
pub mod timeline;
pub mod watch;
pub mod write;
pub mod yaml;

pub use key::{Key, ParseKeyError};
pub use mizzen_metrics as metrics;
pub use object::Object;
pub use resource::Resource;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-client-go.md")]
struct FromClientGo;
