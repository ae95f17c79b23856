//! Signals.

use std::io;

/// Resolves at SIGINT or SIGTERM. A second signal ends the process with code 1.
#[cfg(unix)]
pub(super) fn shutdown() -> io::Result<impl Future<Output = ()> + Send> {
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
pub(super) fn shutdown() -> io::Result<impl Future<Output = ()> + Send> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
