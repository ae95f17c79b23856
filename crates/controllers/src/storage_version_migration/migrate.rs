//! Takes a migration to its next step. Each writes its status, of which the census hears, so that the next one comes.

use http::Method;
use mizzen_sdk::api::{ListOptions, Patch};
use mizzen_sdk::resource::STORAGE_VERSION_MIGRATIONS;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Value;

use super::step::{Step, full_name, next, unhandled};
use super::verdict::{Verdict, check_version, is_due, judge, no_change};
use super::{is_served, status};
use crate::{After, Context, Error, Reconcile};

/// Under whose name objects are written again.
const MANAGER: &str = "storage-version-migrator-controller";
/// A namespace that cannot be: a list of nothing has a version, too.
const NOWHERE: &str = "@fake:svm_ns!";

/// Works on the migrations that run.
pub(super) struct Migrator {
    pub context: Context,
}

/// Why not all objects were written.
enum Stop {
    Later(After),
    Never(String),
    Trouble(Error),
}

impl Reconcile for Migrator {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        if !is_served(self.context.census()).await {
            return Ok(After::Done);
        }
        let Some(migration) = self.find(key).await? else {
            return Ok(After::Done);
        };
        let served = self.context.census().served();
        match next(&migration, &served, self.context.now().as_second()) {
            Step::Nothing => Ok(After::Done),
            Step::Wait => Err(Error::Other("the resource is not known yet".into())),
            Step::Fail(why) => self.fail(migration, &why).await,
            Step::Note(resource) => self.note(migration, resource).await,
            Step::Rewrite(resource) => self.rewrite(migration, resource).await,
        }
    }
}

impl Migrator {
    /// Kubernetes: the role of this loop lets it list migrations, but not get one.
    async fn find(&self, key: &Key) -> Result<Option<Object>, Error> {
        let options = ListOptions {
            fields: format!("metadata.name={}", key.name()),
            ..ListOptions::default()
        };
        Ok(self
            .context
            .api
            .list(&STORAGE_VERSION_MIGRATIONS, "", &options)
            .await?
            .pop())
    }

    async fn note(&self, migration: Object, of: &Resource) -> Result<After, Error> {
        let path = format!("{}?limit=1", of.path(NOWHERE));
        let list = self.context.api.raw(Method::GET, &path, None).await?;
        let version = list["metadata"]["resourceVersion"].str();
        if let Err(why) = check_version(version) {
            let why = format!(
                "latest resourceVersion for {} is not valid: {why}",
                full_name(of)
            );
            return self.fail(migration, &why).await;
        }
        self.write(migration, |migration| {
            migration.entry("status").set("resourceVersion", version)
        })
        .await
    }

    async fn rewrite(&self, migration: Object, of: &Resource) -> Result<After, Error> {
        let now = || self.context.now_text();
        match self
            .rewrite_all(migration["status"]["resourceVersion"].str(), of)
            .await
        {
            Ok(()) => {
                self.write(migration, |migration| status::succeed(migration, &now()))
                    .await
            }
            Err(Stop::Later(after)) => Ok(after),
            Err(Stop::Never(why)) => self.fail(migration, &unhandled(&why)).await,
            Err(Stop::Trouble(error)) => Err(error),
        }
    }

    /// Writes all objects that were written last until `noted`. What this wrote before it stopped is not written again.
    async fn rewrite_all(&self, noted: &str, of: &Resource) -> Result<(), Stop> {
        let api = self.context.api.metadata_only();
        let objects = api.list(of, "", &ListOptions::default()).await;
        for object in objects.map_err(|error| Stop::Trouble(error.into()))? {
            if is_due(object.version(), noted).map_err(Stop::Never)? {
                self.rewrite_one(of, &object).await?;
            }
        }
        Ok(())
    }

    async fn rewrite_one(&self, of: &Resource, object: &Object) -> Result<(), Stop> {
        let (api, how) = (
            self.context.api.metadata_only(),
            Patch::Apply { manager: MANAGER },
        );
        let answer = api
            .patch(of, &object.key(), "", how, &no_change(of, object))
            .await;
        let Err(error) = answer else { return Ok(()) };
        match judge(&error) {
            Verdict::Settled => Ok(()),
            Verdict::Again(Some(wait)) => Err(Stop::Later(After::Again(wait))),
            Verdict::Again(None) => Err(Stop::Trouble(error.into())),
            Verdict::Failed(why) => Err(Stop::Never(why)),
        }
    }

    async fn fail(&self, migration: Object, why: &str) -> Result<After, Error> {
        let now = self.context.now_text();
        self.write(migration, |migration| status::fail(migration, why, &now))
            .await
    }

    async fn write(
        &self,
        mut migration: Object,
        change: impl FnOnce(&mut Value),
    ) -> Result<After, Error> {
        change(&mut migration);
        self.context
            .api
            .update_status(&STORAGE_VERSION_MIGRATIONS, &migration)
            .await?;
        Ok(After::Done)
    }
}
