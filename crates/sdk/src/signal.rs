//! When does a process have to end?
//!
//! ```no_run
//! # async fn serve(stop: impl Future<Output = ()>) {}
//! # async fn example() -> std::io::Result<()> {
//! let stop = mizzen_sdk::signal::shutdown()?;
//! serve(stop).await;
//! # Ok(())
//! # }
//! ```

use std::io;

/// Resolves at SIGINT or SIGTERM, with which Kubernetes stops a pod. A second signal ends the process with code 1. Both
/// are caught as soon as this returns, before the future is polled.
#[cfg(unix)]
pub fn shutdown() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let mut next = async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok(async move {
        next().await;
        tokio::spawn(async move {
            next().await;
            std::process::exit(1);
        });
    })
}

/// Resolves at Ctrl-C.
#[cfg(not(unix))]
pub fn shutdown() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
