//! How is a container runtime used? A client of the container runtime interface (CRI), version 1.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mizzen_cri::messages::ListContainersRequest;
//! use mizzen_cri::{CriClient, DEFAULT_ENDPOINT};
//!
//! let runtime = CriClient::connect(DEFAULT_ENDPOINT).await?;
//! let containers = runtime.call(ListContainersRequest::default()).await?.containers;
//! # Ok(())
//! # }
//! ```

mod client;
pub mod containerd;
mod held;
pub mod image_name;
pub mod messages;

pub use client::{
    CallError, ConnectError, ContainerEvents, CriClient, CriRequest, DEFAULT_ENDPOINT,
};
pub use tonic::Code;
