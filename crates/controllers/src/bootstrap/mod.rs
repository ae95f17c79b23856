//! Tokens by which machines join a cluster: they sign its description, and go when their time is over.

mod sign;
mod token;

use std::sync::Arc;

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::write::{is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};

use crate::{After, Context, Error, Reconcile, Work};
use token::{Life, is_token, life, signer};

struct Signer {
    context: Context,
    secrets: Informer<Object>,
    config_maps: Informer<Object>,
}

struct Cleaner {
    context: Context,
    secrets: Informer<Object>,
}

/// The description of the cluster, which everybody may read.
fn cluster_info() -> Key {
    Key::new("kube-public", "cluster-info")
}

/// Sets up the loop that signs the cluster's description.
pub(crate) fn start_signer(context: &Context) -> Work {
    let context = context.named("bootstrap-signer");
    let queue = context.queue("bootstrap_signer_queue");
    let (secrets, config_maps) = (context.follow(&SECRETS), context.follow(&CONFIG_MAPS));
    let todo = queue.clone();
    config_maps.add_handler(move |event: Event<Object>| {
        if *event.key() == cluster_info() {
            todo.add(cluster_info());
        }
    });
    let todo = queue.clone();
    secrets.add_handler(move |event: Event<Object>| {
        if is_of_token(&event) {
            todo.add(cluster_info());
        }
    });
    Work::new(
        queue,
        1,
        Arc::new(Signer {
            context,
            secrets,
            config_maps,
        }),
    )
}

/// Sets up the loop that deletes tokens whose time is over.
pub(crate) fn start_cleaner(context: &Context) -> Work {
    let context = context.named("token-cleaner");
    let queue = context.queue("token_cleaner");
    let secrets = context.follow(&SECRETS);
    let todo = queue.clone();
    secrets.add_handler(move |event: Event<Object>| {
        if is_of_token(&event) {
            todo.add(event.key().clone());
        }
    });
    Work::new(queue, 1, Arc::new(Cleaner { context, secrets }))
}

fn is_of_token(event: &Event<Object>) -> bool {
    event.key().namespace() == token::NAMESPACE
        && event
            .object()
            .object()
            .is_ok_and(|secret| is_token(&secret))
}

impl Reconcile for Signer {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(description) = self.config_maps.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let now = self.context.now().as_second();
        let secrets = self.secrets.lister().namespaced(token::NAMESPACE).list()?;
        let tokens: Vec<_> = secrets
            .iter()
            .filter(|secret| is_token(secret))
            .filter_map(|secret| signer(secret, now))
            .collect();
        let Some(signed) = sign::signed(&description, &tokens) else {
            return Ok(After::Done);
        };
        match self.context.api.update(&CONFIG_MAPS, &Object(signed)).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(After::Done),
        }
    }
}

impl Reconcile for Cleaner {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let secret = self.secrets.lister().by_key(key)?;
        let Some(secret) = secret.filter(|secret| is_token(secret)) else {
            return Ok(After::Done);
        };
        match life(&secret, self.context.now().as_second()) {
            Life::Endless => return Ok(After::Done),
            Life::Left(left) => return Ok(After::Again(left)),
            Life::Over => {}
        }
        let same = DeleteOptions {
            uid: Some(secret.uid()),
            ..DeleteOptions::default()
        };
        match self.context.api.delete(&SECRETS, key, &same).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error.into()),
            _ => Ok(After::Done),
        }
    }
}
