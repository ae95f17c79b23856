//! The file that says who decides may change while the server runs: what it says then is gone by, if it makes sense.

use std::path::Path;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{Authorization, ConfigurationError};
use crate::server::Inner;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(5);

/// Looks at the file for ever. `known` is what it said when the server was started.
pub(crate) async fn follow(server: &Inner, file: &Path, mut known: Vec<u8>) {
    server.access.counts.reloads.gone_by(&known);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(outcome) = look(server, file, &mut known) else {
            continue;
        };
        server
            .access
            .counts
            .reloads
            .reloaded(outcome.is_ok(), server.registry.now());
        match outcome {
            Ok(()) => {
                server.access.counts.reloads.gone_by(&known);
                tracing::info!(file = %file.display(), "the authorization configuration is read again");
            }
            Err(problem) => {
                let file = file.display();
                tracing::error!(%file, %problem, "the authorization configuration is gone by as it was before");
            }
        }
    }
}

/// What came of looking; none if the file is as it was.
fn look(
    server: &Inner,
    file: &Path,
    known: &mut Vec<u8>,
) -> Option<Result<(), ConfigurationError>> {
    match std::fs::read(file) {
        Err(error) => Some(Err(ConfigurationError(error.to_string()))),
        Ok(text) if text == *known => None,
        Ok(text) => {
            *known = text;
            Some(
                Authorization::parse(known)
                    .and_then(|authorization| server.access.replace(&authorization)),
            )
        }
    }
}
