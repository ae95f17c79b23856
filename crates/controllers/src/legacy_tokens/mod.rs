//! Tokens that were made for accounts unasked, are kept in secrets, and that nobody uses: first they are told to be
//! invalid, later they are deleted. Who still needs one has a while to say so.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mizzen_kinds::references;
use mizzen_sdk::api::{DeleteOptions, Patch};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;
use tokio::time::{MissedTickBehavior, interval};

use crate::service_account_tokens::{NAME, is_of};
use crate::{Context, Error, Work};
use plan::{Fate, INVALID_SINCE, Times, fate};

/// How often all secrets are looked at.
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Says since when the server notes which tokens are used.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

struct Tokens {
    context: Context,
    secrets: Informer<Object>,
    accounts: Informer<Object>,
    pods: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("legacy-service-account-token-cleaner");
    let (secrets, accounts) = (context.follow(&SECRETS), context.follow(&SERVICE_ACCOUNTS));
    let pods = context.follow(&PODS);
    Work::default().and(
        Tokens {
            context,
            secrets,
            accounts,
            pods,
        }
        .run(),
    )
}

impl Tokens {
    async fn run(self) {
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if let Err(error) = self.look().await {
                tracing::warn!(%error, "cannot look for unused legacy tokens");
            }
        }
    }

    async fn look(&self) -> Result<(), Error> {
        let key = Key::new("kube-system", TRACKING);
        let tracking = self.context.api.get(&CONFIG_MAPS, &key).await?;
        let now = self.context.now().as_second();
        let Some(times) = Times::at(now, tracking["data"]["since"].str()) else {
            return Ok(());
        };
        let mut mounted = BTreeMap::new();
        for secret in self.secrets.lister().list()? {
            let Some(fate) = fate(&secret, &times) else {
                continue;
            };
            if !self.is_made_unasked(&secret)? || self.is_mounted(&secret, &mut mounted)? {
                continue;
            }
            let outcome = match fate {
                Fate::Invalid => self.invalidate(&secret, &times.today).await,
                Fate::Gone => self.delete(&secret).await,
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, secret = %secret.key(), "cannot throw away a token");
            }
        }
        Ok(())
    }

    /// Whether a secret was made for an account, which says so by naming it.
    fn is_made_unasked(&self, secret: &Object) -> Result<bool, Error> {
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
        Ok(account.is_some_and(|account| is_of(secret, &account) && names(&account)))
    }

    /// Whether a pod uses a secret. What is found out of a namespace is kept in `known`.
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
            .patch(&SECRETS, &secret.key(), "", Patch::Merge, &change)
            .await?;
        Ok(())
    }

    async fn delete(&self, secret: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            version: Some(secret.version()),
            ..DeleteOptions::default()
        };
        match self
            .context
            .api
            .delete(&SECRETS, &secret.key(), &options)
            .await
        {
            Err(error) if !is_conflict(&error) && !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
