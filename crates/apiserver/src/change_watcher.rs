//! Watches resources for changes, without looking at them.

use mizzen_registry::{Resource, ResourceWatch, Selection, WatchOptions};

use crate::Server;

/// Watches a resource for changes.
pub(crate) struct ChangeWatcher {
    server: Server,
    resource: Resource,
    selection: Selection,
    watch: Option<ResourceWatch>,
}

impl ChangeWatcher {
    /// A watcher of all objects of a resource.
    pub(crate) fn new(server: &Server, resource: Resource) -> ChangeWatcher {
        ChangeWatcher {
            server: server.clone(),
            resource,
            selection: Selection::default(),
            watch: None,
        }
    }

    /// The same, of the selected objects.
    pub(crate) fn selecting(self, selection: Selection) -> ChangeWatcher {
        ChangeWatcher { selection, ..self }
    }

    /// Resolves after a change, also when the watch starts or has expired.
    pub(crate) async fn changed(&mut self) {
        if let Some(watch) = &mut self.watch
            && watch.next().await.is_ok()
        {
            return;
        }
        let options = WatchOptions {
            selection: self.selection.clone(),
            initial: Some(false),
            ..WatchOptions::default()
        };
        let registry = self.server.registry();
        self.watch = registry.watch(&self.resource, options).await.ok();
    }
}

/// Resolves when one of the resources has changed.
pub(crate) async fn any_changed(watchers: &mut [ChangeWatcher]) {
    match watchers {
        [] => std::future::pending().await,
        [one] => one.changed().await,
        [one, rest @ ..] => {
            tokio::select! {
                () = one.changed() => {}
                () = Box::pin(any_changed(rest)) => {}
            }
        }
    }
}
