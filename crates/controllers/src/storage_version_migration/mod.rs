//! The storage version migrator: rewrites each object of a resource without a change, so that the
//! server stores it in the current storage version.
//!
//! `schedule` runs one migration for each resource at a time, oldest first (`turn`), and updates
//! the resource's definition (`definition`). `migrate` runs a migration step by step (`step`).
//! `status` has the conditions, `rewrite` the meaning of responses.
//!
//! Kubernetes: the kind is off by default. The metadata informers watch it while the server has it.
//!
//! Invariant: decisions are made on migrations read from the server, so that a stale cache repeats
//! nothing.

mod definition;
mod migrate;
mod rewrite;
mod schedule;
mod status;
mod step;
mod turn;

use std::sync::Arc;

use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::STORAGE_VERSION_MIGRATIONS;
use mizzen_sdk::{Key, ResourceType};
use mizzen_value::Value;

use crate::metadata_informers::{MetadataHandler, MetadataInformers, ObjectMetadataList};
use crate::{Controller, ControllerContext};
use migrate::Migrator;
use schedule::MigrationScheduler;

/// How many migrations run at a time.
const WORKERS: usize = 5;

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("storage-version-migrator-controller");
    let metadata_informers = context.metadata_informers().clone();
    let turns = Queue::new("migration_runner");
    let migrations = Queue::new("storage_version_migrator");
    metadata_informers.add_handler(Arc::new(MigrationEnqueuer {
        turns: turns.clone(),
    }));
    let scheduler = MigrationScheduler {
        context: context.clone(),
        running: migrations.clone(),
    };
    let migrator = Controller::for_keys(&context)
        .queue(migrations)
        .workers(WORKERS)
        .reconcile(Migrator {
            context: context.clone(),
        });
    Controller::for_keys(&context)
        .queue(turns)
        .reconcile(scheduler)
        .merge(migrator)
        .with_task(metadata_informers.run())
}

/// Whether the server has migrations; waits for discovery.
async fn is_served(metadata_informers: &MetadataInformers) -> bool {
    let ResourceType { kind, .. } = &STORAGE_VERSION_MIGRATIONS;
    metadata_informers
        .wait_for_discovery()
        .await
        .find(&STORAGE_VERSION_MIGRATIONS.api_version(), kind)
        .is_some()
}

/// Enqueues a sync of all migrations when one changes.
struct MigrationEnqueuer {
    turns: Queue<Key>,
}

impl MigrationEnqueuer {
    fn enqueue_all(&self) {
        self.turns.add(Key::cluster("all"));
    }

    fn if_migration(&self, of: &ResourceType) {
        let ResourceType { group, plural, .. } = &STORAGE_VERSION_MIGRATIONS;
        if of.plural == *plural && of.group == *group {
            self.enqueue_all();
        }
    }
}

impl MetadataHandler for MigrationEnqueuer {
    fn on_replace(&self, of: &ResourceType, _objects: ObjectMetadataList) {
        self.if_migration(of);
    }

    fn on_update(&self, of: &ResourceType, _object: &Value) {
        self.if_migration(of);
    }

    fn on_delete(&self, of: &ResourceType, _object: &Value) {
        self.if_migration(of);
    }

    /// A resource that a migration waits for may exist now.
    fn on_discovery(&self) {
        self.enqueue_all();
    }
}
