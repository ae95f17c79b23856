//! A secret for an account's token gets one, and goes with the account.

mod plan;

use std::sync::Arc;

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{SECRETS, SERVICE_ACCOUNTS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::context::SignToken;
use crate::{After, Context, Error, Reconcile, Work};
use plan::{fill, is_lacking};

pub(crate) use plan::{NAME, holds_token, is_of};

const WORKERS: usize = 5;

struct Tokens {
    context: Context,
    secrets: Informer<Object>,
    accounts: Informer<Object>,
    sign: SignToken,
}

/// Sets up the loop. Without somebody who signs there is nothing to do.
pub(crate) fn start(context: &Context) -> Work {
    // It works under the name of all loops together: whoever fills these secrets could be anybody.
    let context = context.clone();
    let Some(sign) = context.options.sign_token.clone() else {
        return Work::default();
    };
    let queue = context.queue("serviceaccount_tokens_secret");
    let (secrets, accounts) = (context.follow(&SECRETS), context.follow(&SERVICE_ACCOUNTS));
    let todo = queue.clone();
    secrets.add_handler(move |event: Event<Object>| {
        if event
            .object()
            .object()
            .is_ok_and(|secret| holds_token(&secret))
        {
            todo.add(event.key().clone());
        }
    });
    let (todo, known) = (queue.clone(), secrets.clone());
    accounts.add_handler(move |event: Event<Object>| {
        if let Event::Deleted { last, .. } = event {
            let secrets = known
                .lister()
                .namespaced(last.key().namespace())
                .list()
                .unwrap_or_default();
            let theirs = |secret: &&Arc<Object>| {
                holds_token(secret) && secret.annotation(plan::NAME) == Some(last.key().name())
            };
            secrets
                .iter()
                .filter(theirs)
                .for_each(|secret| todo.add(secret.key()));
        }
    });
    Work::new(
        queue,
        WORKERS,
        Arc::new(Tokens {
            context,
            secrets,
            accounts,
            sign,
        }),
    )
}

impl Reconcile for Tokens {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        match self.secrets.lister().by_key(key)? {
            None => self.unlist(key).await?,
            Some(secret) if holds_token(&secret) => match self.account_of(&secret).await? {
                None => self.delete(&secret).await?,
                Some(account) => self.fill(&secret, &account).await?,
            },
            Some(_) => {}
        }
        Ok(After::Done)
    }
}

impl Tokens {
    /// The account whose token a secret holds. Only the server knows for sure that it is gone.
    async fn account_of(&self, secret: &Object) -> Result<Option<Object>, Error> {
        let key = Key::new(
            secret.namespace(),
            secret.annotation(plan::NAME).unwrap_or_default(),
        );
        if let Some(account) = self
            .accounts
            .lister()
            .by_key(&key)?
            .filter(|account| is_of(secret, account))
        {
            return Ok(Some(Object::clone(&account)));
        }
        let found = self.context.api.find(&SERVICE_ACCOUNTS, &key).await?;
        Ok(found.filter(|account| is_of(secret, account)))
    }

    async fn delete(&self, secret: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(secret.uid()),
            ..DeleteOptions::default()
        };
        gone_or_new(
            self.context
                .api
                .delete(&SECRETS, &secret.key(), &options)
                .await,
        )
    }

    async fn fill(&self, cached: &Object, account: &Object) -> Result<(), Error> {
        let root_ca = self.context.options.root_ca.as_deref();
        if !is_lacking(cached, root_ca) {
            return Ok(());
        }
        let mut secret = cached.clone();
        if !fill(&mut secret, account, root_ca, |claims: &Value| {
            (self.sign)(claims)
        }) {
            return Err(Error::Other("the token could not be signed".into()));
        }
        // Whoever was faster is heard of, and looked at then.
        gone_or_new(self.context.api.update(&SECRETS, &secret).await)
    }

    /// Takes a secret that is gone out of the lists of those accounts that have it.
    async fn unlist(&self, key: &Key) -> Result<(), Error> {
        let lists = |secret: &Value| secret["name"].str() == key.name();
        for account in self.accounts.lister().namespaced(key.namespace()).list()? {
            if account["secrets"].list().iter().any(lists) {
                let mut account = Object::clone(&account);
                account
                    .entry("secrets")
                    .make_list()
                    .retain(|secret| !lists(secret));
                gone_or_new(self.context.api.update(&SERVICE_ACCOUNTS, &account).await)?;
            }
        }
        Ok(())
    }
}

/// An object that is gone, or another by now, is none of our business.
fn gone_or_new(outcome: Result<Object, kube::Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error.into()),
        _ => Ok(()),
    }
}
