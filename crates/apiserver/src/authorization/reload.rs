//! Reloads the authorization configuration file when it changes.

use std::path::Path;

use super::{Authorization, AuthorizationConfigurationError};
use crate::file_watcher::{FileError, FileWatcher};
use crate::server::ServerParts;

/// Watches the file forever. `known` is its content at start-up.
pub(crate) async fn reload_on_change(server: &ServerParts, file: &Path, known: Vec<u8>) {
    let reloads = &server.authorization.counts.reloads;
    reloads.set_content(&known);
    let watcher = FileWatcher::new([file.into()], [known]);
    let load = |content: Result<&[u8], FileError>| {
        let outcome = content
            .map_err(|error| AuthorizationConfigurationError(error.to_string()))
            .and_then(|content| {
                server
                    .authorization
                    .replace(&Authorization::parse(content)?)?;
                Ok(content)
            });
        reloads.record_reload(outcome.is_ok(), server.registry.now());
        match &outcome {
            Ok(content) => {
                reloads.set_content(content);
                tracing::info!(file = %file.display(), "reloaded the authorization configuration");
            }
            Err(error) => tracing::error!(
                file = %file.display(), %error,
                "invalid authorization configuration, keeping the previous one"
            ),
        }
        outcome.is_ok()
    };
    watcher.run(load).await;
}
