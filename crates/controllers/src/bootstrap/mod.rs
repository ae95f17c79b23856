//! The bootstrap signer and the token cleaner: bootstrap tokens sign the cluster-info ConfigMap,
//! and expired tokens are deleted.

mod sign;
mod token;

use std::sync::Arc;

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};

use crate::common::api_errors::ignore_not_found;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use token::{TokenExpiration, expiration, is_token, signing_token};

struct BootstrapSigner {
    context: ControllerContext,
    secrets: Informer<Object>,
    config_maps: Informer<Object>,
}

struct TokenCleaner {
    context: ControllerContext,
    secrets: Informer<Object>,
}

/// The cluster-info ConfigMap, which is public.
fn cluster_info() -> Key {
    Key::new("kube-public", "cluster-info")
}

/// Creates the bootstrap-signer controller.
pub(crate) fn start_signer(context: &ControllerContext) -> Controller {
    let context = context.named("bootstrap-signer");
    let queue = context.queue("bootstrap_signer_queue");
    let (secrets, config_maps) = (context.informer(&SECRETS), context.informer(&CONFIG_MAPS));
    let todo = queue.clone();
    config_maps.add_handler(move |event: Event<Object>| {
        if *event.key() == cluster_info() {
            todo.add(cluster_info());
        }
    });
    let todo = queue.clone();
    secrets.add_handler(move |event: Event<Object>| {
        if is_token_event(&event) {
            todo.add(cluster_info());
        }
    });
    let reconciler = BootstrapSigner {
        context,
        secrets,
        config_maps,
    };
    Controller::new(queue, 1, Arc::new(reconciler))
}

/// Creates the token-cleaner controller.
pub(crate) fn start_cleaner(context: &ControllerContext) -> Controller {
    let context = context.named("token-cleaner");
    let queue = context.queue("token_cleaner");
    let secrets = context.informer(&SECRETS);
    let todo = queue.clone();
    secrets.add_handler(move |event: Event<Object>| {
        if is_token_event(&event) {
            todo.add(event.key().clone());
        }
    });
    Controller::new(queue, 1, Arc::new(TokenCleaner { context, secrets }))
}

fn is_token_event(event: &Event<Object>) -> bool {
    event.key().namespace() == token::NAMESPACE
        && event
            .object()
            .object()
            .is_ok_and(|secret| is_token(&secret))
}

impl Reconcile for BootstrapSigner {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(description) = self.config_maps.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        let now = self.context.now().as_second();
        let secrets = self.secrets.lister().namespaced(token::NAMESPACE).list()?;
        let tokens: Vec<_> = secrets
            .iter()
            .filter(|secret| is_token(secret))
            .filter_map(|secret| signing_token(secret, now))
            .collect();
        let Some(signed) = sign::with_signatures(&description, &tokens) else {
            return Ok(Action::AwaitChange);
        };
        ignore_not_found(self.context.api.update(&CONFIG_MAPS, &Object(signed)).await)?;
        Ok(Action::AwaitChange)
    }
}

impl Reconcile for TokenCleaner {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let secret = self.secrets.lister().by_key(key)?;
        let Some(secret) = secret.filter(|secret| is_token(secret)) else {
            return Ok(Action::AwaitChange);
        };
        match expiration(&secret, self.context.now().as_second()) {
            TokenExpiration::Never => return Ok(Action::AwaitChange),
            TokenExpiration::After(left) => return Ok(Action::Requeue(left)),
            TokenExpiration::Expired => {}
        }
        let same = DeleteOptions {
            uid: Some(secret.uid()),
            ..DeleteOptions::default()
        };
        match self.context.api.delete(&SECRETS, key, &same).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}
