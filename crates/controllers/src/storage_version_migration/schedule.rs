//! Runs one migration for each resource at a time.

use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::{ListOptions, PatchType};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS};
use mizzen_sdk::{Key, Object, write};
use mizzen_value::Value;

use super::turn::{ResourceTurn, turns};
use super::{definition, is_served, status};
use crate::{Action, ControllerContext, Error, Reconcile};

/// Schedules all migrations.
pub(super) struct MigrationScheduler {
    pub context: ControllerContext,
    pub running: Queue<Key>,
}

impl Reconcile for MigrationScheduler {
    async fn reconcile(&self, _all: &Key, _: &Context) -> Result<Action, Error> {
        if !is_served(self.context.metadata_informers()).await {
            return Ok(Action::done());
        }
        let api = &self.context.api;
        let migrations = api
            .list(&STORAGE_VERSION_MIGRATIONS, "", &ListOptions::default())
            .await?;
        let mut outcome = Ok(Action::done());
        for turn in turns(&migrations) {
            turn.running
                .iter()
                .for_each(|migration| self.running.add(migration.key()));
            // An error with one resource does not delay the other ones.
            outcome = outcome.and(self.apply_turn(turn).await);
        }
        outcome
    }
}

impl MigrationScheduler {
    async fn apply_turn(&self, turn: ResourceTurn<'_>) -> Result<Action, Error> {
        for migration in turn.ended {
            self.end(migration).await?;
        }
        if let Some(migration) = turn.next {
            self.begin(migration).await?;
        }
        Ok(Action::done())
    }

    async fn begin(&self, migration: &Object) -> Result<(), Error> {
        let now = self.context.now_text();
        self.update_definition(migration, |known| {
            definition::migration_started(known, migration.name(), &now)
        })
        .await?;
        self.write(migration, |migration| status::begin(migration, &now))
            .await
    }

    async fn end(&self, migration: &Object) -> Result<(), Error> {
        let now = self.context.now_text();
        let succeeded = status::has_succeeded(migration);
        self.update_definition(migration, |known| {
            definition::migration_ended(known, succeeded, &now)
        })
        .await?;
        self.write(migration, |migration| status::complete(migration, &now))
            .await
    }

    /// Updates the status of the resource's CustomResourceDefinition, if it has one.
    async fn update_definition(
        &self,
        migration: &Object,
        change: impl Fn(&Object) -> Value,
    ) -> Result<(), Error> {
        let (api, of) = (&self.context.api, &migration["spec"]["resource"]);
        let key = Key::cluster(format!("{}.{}", of["resource"].str(), of["group"].str()));
        let updated = write::retry(async || {
            let Some(known) = api.find(&CUSTOM_RESOURCE_DEFINITIONS, &key).await? else {
                return Ok(());
            };
            let change = change(&known);
            api.patch(
                &CUSTOM_RESOURCE_DEFINITIONS,
                &key,
                "status",
                PatchType::Merge,
                &change,
            )
            .await
            .map(drop)
        });
        Ok(updated.await?)
    }

    async fn write(
        &self,
        migration: &Object,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), Error> {
        let mut migration = migration.clone();
        change(&mut migration);
        self.context
            .api
            .update_status(&STORAGE_VERSION_MIGRATIONS, &migration)
            .await?;
        Ok(())
    }
}
