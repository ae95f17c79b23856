//! Reloads the authorization configuration file when it changes.

use std::path::Path;

use mizzen_authorization::Authorization;

use crate::file_watcher::{FileError, FileWatcher};
use crate::server::ServerParts;

/// Watches the file forever. `known` is its content at start-up.
pub(crate) async fn reload_on_change(server: &ServerParts, file: &Path, known: Vec<u8>) {
    let reloads = server.authorization.reloads();
    reloads.set_content(&known);
    let watcher = FileWatcher::new([file.into()], [known]);
    let load = |content: Result<&[u8], FileError>| {
        let outcome = content.map_err(|error| error.to_string());
        let outcome = outcome.and_then(|content| {
            let replaced = Authorization::parse(content)
                .and_then(|authorization| server.authorization.replace(&authorization));
            replaced.map_err(|error| error.to_string())?;
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
