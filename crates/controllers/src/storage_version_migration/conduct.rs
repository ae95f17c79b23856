//! Lets one migration of each resource run at a time.

use mizzen_sdk::api::{ListOptions, Patch};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{CUSTOM_RESOURCE_DEFINITIONS, STORAGE_VERSION_MIGRATIONS};
use mizzen_sdk::{Key, Object, write};
use mizzen_value::Value;

use super::turn::{Turn, turns};
use super::{definition, is_served, status};
use crate::{After, Context, Error, Reconcile};

/// Looks at all migrations at once.
pub(super) struct Conductor {
    pub context: Context,
    /// The migrations to be worked on.
    pub running: Queue<Key>,
}

impl Reconcile for Conductor {
    async fn reconcile(&self, _all: &Key) -> Result<After, Error> {
        if !is_served(self.context.census()).await {
            return Ok(After::Done);
        }
        let api = &self.context.api;
        let migrations = api
            .list(&STORAGE_VERSION_MIGRATIONS, "", &ListOptions::default())
            .await?;
        let mut outcome = Ok(After::Done);
        for turn in turns(&migrations) {
            turn.running
                .iter()
                .for_each(|migration| self.running.add(migration.key()));
            // A resource of which something goes wrong keeps no other waiting.
            outcome = outcome.and(self.take(turn).await);
        }
        outcome
    }
}

impl Conductor {
    async fn take(&self, turn: Turn<'_>) -> Result<After, Error> {
        for migration in turn.ended {
            self.end(migration).await?;
        }
        if let Some(migration) = turn.next {
            self.begin(migration).await?;
        }
        Ok(After::Done)
    }

    async fn begin(&self, migration: &Object) -> Result<(), Error> {
        let now = self.context.now_text();
        self.tell(migration, |known| {
            definition::begun(known, migration.name(), &now)
        })
        .await?;
        self.write(migration, |migration| status::begin(migration, &now))
            .await
    }

    async fn end(&self, migration: &Object) -> Result<(), Error> {
        let now = self.context.now_text();
        let succeeded = status::has_succeeded(migration);
        self.tell(migration, |known| definition::ended(known, succeeded, &now))
            .await?;
        self.write(migration, |migration| status::complete(migration, &now))
            .await
    }

    /// Changes the definition of a migration's resource, if it has one.
    async fn tell(
        &self,
        migration: &Object,
        change: impl Fn(&Object) -> Value,
    ) -> Result<(), Error> {
        let (api, of) = (&self.context.api, &migration["spec"]["resource"]);
        let key = Key::cluster(format!("{}.{}", of["resource"].str(), of["group"].str()));
        let told = write::retry(async || {
            let Some(known) = api.find(&CUSTOM_RESOURCE_DEFINITIONS, &key).await? else {
                return Ok(());
            };
            let change = change(&known);
            api.patch(
                &CUSTOM_RESOURCE_DEFINITIONS,
                &key,
                "status",
                Patch::Merge,
                &change,
            )
            .await
            .map(drop)
        });
        Ok(told.await?)
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
