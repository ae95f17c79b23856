//! Controllers that were stopped.

use std::sync::Arc;

use mizzen_controllers::Options;

use super::cluster::Cluster;

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
            let hold = |options: &mut Options| {
                let clients = options.clients.clone();
                options.clients = Arc::new(move |name| {
                    let _ = &held;
                    clients(name)
                });
            };
            Cluster::set_up(&[name], hold).await.settle().await;
        });
        drop(runtime);
        assert_eq!(Arc::strong_count(&held), 1, "{name}");
    }
}
