//! Runs one migration. Each step writes the status, whose event enqueues the next one.

use http::Method;
use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::{ListOptions, PatchType};
use mizzen_sdk::resource::STORAGE_VERSION_MIGRATIONS;
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Value;

use super::rewrite::{RewriteOutcome, check_version, classify_error, empty_patch, is_due};
use super::step::{MigrationStep, full_name, next_step, unhandled};
use super::{is_served, status};
use crate::{Action, ControllerContext, Error, Reconcile};

/// The field manager of the rewrites.
const MANAGER: &str = "storage-version-migrator-controller";
/// An invalid namespace: the list is empty but has a resourceVersion.
const NO_NAMESPACE: &str = "@fake:svm_ns!";

/// Works on the running migrations.
pub(super) struct Migrator {
    pub context: ControllerContext,
}

/// Why not all objects were rewritten.
enum RewriteError {
    Later(Action),
    Never(String),
    Trouble(Error),
}

impl Reconcile for Migrator {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        if !is_served(self.context.metadata_informers()).await {
            return Ok(Action::done());
        }
        let Some(migration) = self.find(key).await? else {
            return Ok(Action::done());
        };
        let served = self.context.metadata_informers().discovered();
        match next_step(&migration, &served, self.context.now().as_second()) {
            MigrationStep::Nothing => Ok(Action::done()),
            MigrationStep::Wait => Err(Error::other("the resource is not known yet")),
            MigrationStep::Fail(why) => self.fail(migration, &why).await,
            MigrationStep::RecordResourceVersion(resource) => {
                self.record_resource_version(migration, resource).await
            }
            MigrationStep::Rewrite(resource) => self.rewrite(migration, resource).await,
        }
    }
}

impl Migrator {
    /// Kubernetes: the controller's role may list migrations, but not get one.
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

    async fn record_resource_version(
        &self,
        migration: Object,
        of: &ResourceType,
    ) -> Result<Action, Error> {
        let path = format!("{}?limit=1", of.path(NO_NAMESPACE));
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

    async fn rewrite(&self, migration: Object, of: &ResourceType) -> Result<Action, Error> {
        let now = || self.context.now_text();
        match self
            .rewrite_all(migration["status"]["resourceVersion"].str(), of)
            .await
        {
            Ok(()) => {
                self.write(migration, |migration| status::succeed(migration, &now()))
                    .await
            }
            Err(RewriteError::Later(after)) => Ok(after),
            Err(RewriteError::Never(why)) => self.fail(migration, &unhandled(&why)).await,
            Err(RewriteError::Trouble(error)) => Err(error),
        }
    }

    /// Rewrites all objects with a resourceVersion up to `noted`. Objects that were rewritten
    /// before are newer, so they are skipped.
    async fn rewrite_all(&self, noted: &str, of: &ResourceType) -> Result<(), RewriteError> {
        let api = self.context.api.metadata_only();
        let objects = api.list(of, "", &ListOptions::default()).await;
        for object in objects.map_err(|error| RewriteError::Trouble(error.into()))? {
            if is_due(object.version(), noted).map_err(RewriteError::Never)? {
                self.rewrite_one(of, &object).await?;
            }
        }
        Ok(())
    }

    async fn rewrite_one(&self, of: &ResourceType, object: &Object) -> Result<(), RewriteError> {
        let api = self.context.api.metadata_only();
        let how = PatchType::Apply { manager: MANAGER };
        let result = api
            .patch(of, &object.key(), "", how, &empty_patch(of, object))
            .await;
        let Err(error) = result else { return Ok(()) };
        match classify_error(&error) {
            RewriteOutcome::Done => Ok(()),
            RewriteOutcome::Retry(Some(wait)) => {
                Err(RewriteError::Later(Action::requeue_after(wait)))
            }
            RewriteOutcome::Retry(None) => Err(RewriteError::Trouble(error.into())),
            RewriteOutcome::Failed(why) => Err(RewriteError::Never(why)),
        }
    }

    async fn fail(&self, migration: Object, why: &str) -> Result<Action, Error> {
        let now = self.context.now_text();
        self.write(migration, |migration| status::fail(migration, why, &now))
            .await
    }

    async fn write(
        &self,
        mut migration: Object,
        change: impl FnOnce(&mut Value),
    ) -> Result<Action, Error> {
        change(&mut migration);
        self.context
            .api
            .update_status(&STORAGE_VERSION_MIGRATIONS, &migration)
            .await?;
        Ok(Action::done())
    }
}
