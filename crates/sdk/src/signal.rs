//! When does a process have to end?

use std::io;

/// Resolves at SIGINT or SIGTERM, with which Kubernetes stops a pod. A second signal ends the process with code 1. Both
/// are caught as soon as this returns, before the future is polled. Where there are no signals it resolves at Ctrl-C.
///
/// ```no_run
/// # async fn serve(stop: impl Future<Output = ()>) {}
/// # async fn example() -> std::io::Result<()> {
/// let stop = mizzen_sdk::signal::shutdown()?;
/// serve(stop).await;
/// # Ok(())
/// # }
/// ```
pub fn shutdown() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    #[cfg(unix)]
    let mut next = {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        async move || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
    };
    #[cfg(not(unix))]
    let mut next = async || drop(tokio::signal::ctrl_c().await);
    Ok(async move {
        next().await;
        tokio::spawn(async move {
            next().await;
            std::process::exit(1);
        });
    })
}
