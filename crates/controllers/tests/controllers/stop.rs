//! Controllers that were stopped.

use std::sync::Arc;

use mizzen_controllers::Options;

use crate::{cluster_of, settle};

/// A cycle of references between a controller and an informer would leak both.
#[test]
fn a_stopped_controller_leaks_nothing() {
    for name in mizzen_controllers::names() {
        let held = Arc::new(());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let held = held.clone();
            let hold = move |options: &mut Options| {
                let (clients, held) = (options.clients.clone(), held.clone());
                options.clients = Arc::new(move |name| {
                    let _ = &held;
                    clients(name)
                });
            };
            let cluster = cluster_of(&[name]).tune_controllers(hold).start().await;
            settle(&cluster).await;
        });
        drop(runtime);
        assert_eq!(Arc::strong_count(&held), 1, "{name}");
    }
}
