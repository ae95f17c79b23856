//! The legacy service account token cleaner: auto-generated token secrets that are not used are
//! first labelled invalid, later deleted.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mizzen_component_helpers::references;
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;
use tokio::time::{MissedTickBehavior, interval};

use crate::service_account_tokens::{NAME, is_service_account_token};
use crate::{Controller, ControllerContext, Error};
use plan::{CleanupAction, CleanupDates, INVALID_SINCE, cleanup_action};

/// How often secrets are checked.
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// The ConfigMap with the day since when the server tracks the use of tokens.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

struct LegacyTokenCleaner {
    context: ControllerContext,
    secrets: Informer<Object>,
    accounts: Informer<Object>,
    pods: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("legacy-service-account-token-cleaner");
    let secrets = context.informer(&SECRETS);
    let accounts = context.informer(&SERVICE_ACCOUNTS);
    let pods = context.informer(&PODS);
    Controller::new(&context).with_task(
        LegacyTokenCleaner {
            context,
            secrets,
            accounts,
            pods,
        }
        .run(),
    )
}

impl LegacyTokenCleaner {
    async fn run(self) {
        let mut checks = interval(PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            if let Err(error) = self.clean().await {
                tracing::warn!(%error, "legacy token cleanup failed");
            }
        }
    }

    async fn clean(&self) -> Result<(), Error> {
        let key = Key::new("kube-system", TRACKING);
        let tracking = self.context.api.get(&CONFIG_MAPS, &key).await?;
        let now = self.context.now().as_second();
        let Some(times) = CleanupDates::at(now, tracking["data"]["since"].str()) else {
            return Ok(());
        };
        let mut mounted = BTreeMap::new();
        for secret in self.secrets.lister().list()? {
            let Some(fate) = cleanup_action(&secret, &times) else {
                continue;
            };
            if !self.is_auto_generated(&secret)? || self.is_mounted(&secret, &mut mounted)? {
                continue;
            }
            let outcome = match fate {
                CleanupAction::MarkInvalid => self.invalidate(&secret, &times.today).await,
                CleanupAction::Delete => self.delete(&secret).await,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, secret = %secret.key(), "legacy token not cleaned up");
            }
        }
        Ok(())
    }

    /// Whether a secret was auto-generated: its account lists it.
    fn is_auto_generated(&self, secret: &Object) -> Result<bool, Error> {
        let key = Key::new(
            secret.namespace(),
            secret.annotation(NAME).unwrap_or_default(),
        );
        let account = self.accounts.lister().by_key(&key)?;
        let names = |account: &Object| {
            account["secrets"]
                .list()
                .iter()
                .any(|known| known["name"].str() == secret.name())
        };
        Ok(account
            .is_some_and(|account| is_service_account_token(secret, &account) && names(&account)))
    }

    /// Whether a pod mounts a secret. `known` caches the answers for each namespace.
    fn is_mounted(
        &self,
        secret: &Object,
        known: &mut BTreeMap<String, BTreeSet<String>>,
    ) -> Result<bool, Error> {
        let namespace = secret.namespace();
        if !known.contains_key(namespace) {
            let mut names = BTreeSet::new();
            for pod in self.pods.lister().namespaced(namespace).list()? {
                names.extend(references::secrets(&pod).map(String::from));
            }
            known.insert(namespace.into(), names);
        }
        Ok(known
            .get(namespace)
            .is_some_and(|names| names.contains(secret.name())))
    }

    async fn invalidate(&self, secret: &Object, today: &str) -> Result<(), Error> {
        let mut change = value!({ "metadata": { "uid": (secret.uid()) } });
        change
            .entry("metadata")
            .entry("labels")
            .set(INVALID_SINCE, today);
        self.context
            .api
            .patch(&SECRETS, &secret.key(), "", PatchType::Merge, &change)
            .await?;
        Ok(())
    }

    async fn delete(&self, secret: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            version: Some(secret.version()),
            ..DeleteOptions::default()
        };
        let api = &self.context.api;
        match api.delete(&SECRETS, &secret.key(), &options).await {
            Err(error) if !is_conflict(&error) && !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
