//! The bootstrap signer and the token cleaner: bootstrap tokens sign the cluster-info ConfigMap,
//! and expired tokens are deleted.

mod sign;
mod token;

use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
use mizzen_sdk::write::{ignore_not_found, is_conflict, is_not_found};
use mizzen_sdk::{Key, Object};

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
    let (secrets, config_maps) = (context.informer(&SECRETS), context.informer(&CONFIG_MAPS));
    let is_cluster_info = Predicate::new(|event| *event.key() == cluster_info());
    Controller::for_kind(&context, dynamic(&CONFIG_MAPS).filter(is_cluster_info))
        .watches_events(
            dynamic(&SECRETS).filter(Predicate::new(is_token_event)),
            |_, queue| queue.add(cluster_info()),
        )
        .queue_name("bootstrap_signer_queue")
        .reconcile(BootstrapSigner {
            context,
            secrets,
            config_maps,
        })
}

/// Creates the token-cleaner controller.
pub(crate) fn start_cleaner(context: &ControllerContext) -> Controller {
    let context = context.named("token-cleaner");
    let secrets = context.informer(&SECRETS);
    let tokens = dynamic(&SECRETS).filter(Predicate::new(is_token_event));
    Controller::for_kind(&context, tokens)
        .queue_name("token_cleaner")
        .reconcile(TokenCleaner { context, secrets })
}

fn is_token_event(event: &Event<Object>) -> bool {
    event.key().namespace() == token::NAMESPACE
        && event
            .object()
            .object()
            .is_ok_and(|secret| is_token(&secret))
}

impl Reconcile for BootstrapSigner {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(description) = self.config_maps.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let now = self.context.now().as_second();
        let secrets = self.secrets.lister().namespaced(token::NAMESPACE).list()?;
        let tokens: Vec<_> = secrets
            .iter()
            .filter(|secret| is_token(secret))
            .filter_map(|secret| signing_token(secret, now))
            .collect();
        let Some(signed) = sign::with_signatures(&description, &tokens) else {
            return Ok(Action::done());
        };
        ignore_not_found(self.context.api.update(&CONFIG_MAPS, &Object(signed)).await)?;
        Ok(Action::done())
    }
}

impl Reconcile for TokenCleaner {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let secret = self.secrets.lister().by_key(key)?;
        let Some(secret) = secret.filter(|secret| is_token(secret)) else {
            return Ok(Action::done());
        };
        match expiration(&secret, self.context.now().as_second()) {
            TokenExpiration::Never => return Ok(Action::done()),
            TokenExpiration::After(left) => return Ok(Action::requeue_after(left)),
            TokenExpiration::Expired => {}
        }
        let same = DeleteOptions {
            uid: Some(secret.uid()),
            ..DeleteOptions::default()
        };
        match self.context.api.delete(&SECRETS, key, &same).await {
            Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error.into()),
            _ => Ok(Action::done()),
        }
    }
}
