//! The tokens controller: fills service account token secrets, and deletes them with their account.

mod plan;

use std::sync::Arc;

use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{SECRETS, SERVICE_ACCOUNTS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::context::SignToken;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use plan::{fill_secret, needs_update};

pub(crate) use plan::{NAME, holds_token, is_service_account_token};

const WORKERS: usize = 5;

struct TokensController {
    context: ControllerContext,
    secrets: Informer<Object>,
    accounts: Informer<Object>,
    sign: SignToken,
}

/// Creates the controller. Without a token signer it does nothing.
pub(crate) fn start(context: &ControllerContext) -> Controller {
    // It uses the shared client without a controller name, because it can write tokens of any
    // account.
    let context = context.clone();
    let Some(sign) = context.options.sign_token.clone() else {
        return Controller::new(&context);
    };
    let (secrets, accounts) = (
        context.informer(&SECRETS),
        context.informer(&SERVICE_ACCOUNTS),
    );
    let tokens = Predicate::new(|event: &Event<Object>| {
        let secret = event.object().object();
        secret.is_ok_and(|secret| holds_token(&secret))
    });
    let known = secrets.lister();
    Controller::for_kind(&context, dynamic(&SECRETS).filter(tokens))
        .watches_events(&SERVICE_ACCOUNTS, move |event, queue| {
            if let Event::Deleted { last, .. } = event {
                let secrets = known.namespaced(last.key().namespace()).list();
                let theirs = |secret: &&Arc<Object>| {
                    holds_token(secret) && secret.annotation(plan::NAME) == Some(last.key().name())
                };
                let secrets = secrets.unwrap_or_default();
                let theirs = secrets.iter().filter(theirs);
                theirs.for_each(|secret| queue.add(secret.key()));
            }
        })
        .queue_name("serviceaccount_tokens_secret")
        .workers(WORKERS)
        .reconcile(TokensController {
            context,
            secrets,
            accounts,
            sign,
        })
}

impl Reconcile for TokensController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        match self.secrets.lister().by_key(key)? {
            None => self.remove_secret_reference(key).await?,
            Some(secret) if holds_token(&secret) => match self.account_of(&secret).await? {
                None => self.delete(&secret).await?,
                Some(account) => self.generate_token_if_needed(&secret, &account).await?,
            },
            Some(_) => {}
        }
        Ok(Action::done())
    }
}

impl TokensController {
    /// The service account of a token secret. Before it counts as deleted, the server is asked.
    async fn account_of(&self, secret: &Object) -> Result<Option<Object>, Error> {
        let key = Key::new(
            secret.namespace(),
            secret.annotation(plan::NAME).unwrap_or_default(),
        );
        if let Some(account) = self
            .accounts
            .lister()
            .by_key(&key)?
            .filter(|account| is_service_account_token(secret, account))
        {
            return Ok(Some(Object::clone(&account)));
        }
        let found = self.context.api.find(&SERVICE_ACCOUNTS, &key).await?;
        Ok(found.filter(|account| is_service_account_token(secret, account)))
    }

    async fn delete(&self, secret: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(secret.uid()),
            ..DeleteOptions::default()
        };
        ignore_gone_or_conflict(
            self.context
                .api
                .delete(&SECRETS, &secret.key(), &options)
                .await,
        )
    }

    async fn generate_token_if_needed(
        &self,
        cached: &Object,
        account: &Object,
    ) -> Result<(), Error> {
        let root_ca = self.context.options.root_ca.as_deref();
        if !needs_update(cached, root_ca) {
            return Ok(());
        }
        let mut secret = cached.clone();
        if !fill_secret(&mut secret, account, root_ca, |claims: &Value| {
            (self.sign)(claims)
        }) {
            return Err(Error::other("the token could not be signed"));
        }
        // A concurrent update causes an event, which syncs the secret again.
        ignore_gone_or_conflict(self.context.api.update(&SECRETS, &secret).await)
    }

    /// Removes a deleted secret from the accounts that list it.
    async fn remove_secret_reference(&self, key: &Key) -> Result<(), Error> {
        let lists = |secret: &Value| secret["name"].str() == key.name();
        for account in self.accounts.lister().namespaced(key.namespace()).list()? {
            if account["secrets"].list().iter().any(lists) {
                let mut account = Object::clone(&account);
                account
                    .entry("secrets")
                    .make_list()
                    .retain(|secret| !lists(secret));
                ignore_gone_or_conflict(
                    self.context.api.update(&SERVICE_ACCOUNTS, &account).await,
                )?;
            }
        }
        Ok(())
    }
}

/// Ignores objects that are gone or were replaced.
fn ignore_gone_or_conflict(outcome: Result<Object, kube::Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error.into()),
        _ => Ok(()),
    }
}
