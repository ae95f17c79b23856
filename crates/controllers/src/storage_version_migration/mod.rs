//! What was stored in an old version is stored again: a migration names a resource, and each of its objects is written
//! once, without a change, so that the server stores it in the version in which it stores now.
//!
//! `conduct` lets one migration of a resource run at a time, whoever came first (`turn`), and tells the resource's
//! definition of it (`definition`). `migrate` takes a migration that runs from `step` to step. What a migration says of
//! itself is in `status`; what an answer means for it, in `verdict`.
//!
//! Kubernetes: the kind is off by default. It is followed with all others by the census, from when the server has it
//! until the server has it no more, and without it there is nothing to be done here.
//!
//! Invariant: every decision is made on migrations as the server has them, so that nothing is done twice because a cache
//! is late.

mod conduct;
mod definition;
mod migrate;
mod status;
mod step;
mod turn;
mod verdict;

use std::sync::Arc;

use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::STORAGE_VERSION_MIGRATIONS;
use mizzen_sdk::{Key, Resource};
use mizzen_value::Value;

use crate::census::{Census, Listed, Listener};
use crate::{Context, Work};
use conduct::Conductor;
use migrate::Migrator;

/// How many migrations are worked on at a time.
const WORKERS: usize = 5;

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("storage-version-migrator-controller");
    let census = context.census().clone();
    let (turns, migrations) = (
        context.queue("migration_runner"),
        context.queue("storage_version_migrator"),
    );
    census.listen(Arc::new(Wake {
        turns: turns.clone(),
    }));
    let conductor = Conductor {
        context: context.clone(),
        running: migrations.clone(),
    };
    Work::new(turns, 1, Arc::new(conductor))
        .with(Work::new(
            migrations,
            WORKERS,
            Arc::new(Migrator { context }),
        ))
        .and(census.run())
}

/// Whether the server has migrations; waits until that is known.
async fn is_served(census: &Census) -> bool {
    let Resource { kind, .. } = &STORAGE_VERSION_MIGRATIONS;
    census
        .kinds()
        .await
        .find(&STORAGE_VERSION_MIGRATIONS.api_version(), kind)
        .is_some()
}

/// Asks for a look at all migrations when something happened to one.
struct Wake {
    turns: Queue<Key>,
}

impl Wake {
    fn all(&self) {
        self.turns.add(Key::cluster("all"));
    }

    fn if_migration(&self, of: &Resource) {
        let Resource { group, plural, .. } = &STORAGE_VERSION_MIGRATIONS;
        if of.plural == *plural && of.group == *group {
            self.all();
        }
    }
}

impl Listener for Wake {
    fn replaced(&self, of: &Resource, _objects: Listed) {
        self.if_migration(of);
    }

    fn changed(&self, of: &Resource, _object: &Value) {
        self.if_migration(of);
    }

    fn gone(&self, of: &Resource, _object: &Value) {
        self.if_migration(of);
    }

    /// What a migration waits for may be there now.
    fn served(&self) {
        self.all();
    }
}
