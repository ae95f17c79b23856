//! The service accounts controller: every namespace has the account `default`.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::common::api_errors::is_namespace_terminating;
use crate::common::owner_events::enqueue_objects;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const DEFAULT: &str = "default";

struct ServiceAccountsController {
    context: ControllerContext,
    namespaces: Informer<Object>,
    accounts: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("service-account-controller");
    let queue = context.queue("serviceaccount");
    let namespaces = context.informer(&NAMESPACES);
    let accounts = context.informer(&SERVICE_ACCOUNTS);
    enqueue_objects(&namespaces, &queue);
    let todo = queue.clone();
    accounts.add_handler(move |event: Event<Object>| {
        if let Event::Deleted { last, .. } = event {
            todo.add(Key::cluster(last.key().namespace()));
        }
    });
    let reconciler = ServiceAccountsController {
        context,
        namespaces,
        accounts,
    };
    Controller::new(queue, 1, Arc::new(reconciler))
}

impl Reconcile for ServiceAccountsController {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(namespace) = self.namespaces.lister().by_key(key)? else {
            return Ok(Action::AwaitChange);
        };
        let account = Key::new(key.name(), DEFAULT);
        if namespace["status"]["phase"].str() != "Active"
            || self.accounts.store().get(&account).is_some()
        {
            return Ok(Action::AwaitChange);
        }
        let account = value!({"metadata": {"name": DEFAULT, "namespace": (key.name())}});
        let api = &self.context.api;
        match api.create(&SERVICE_ACCOUNTS, &account).await {
            Err(error) if !is_already_exists(&error) && !is_namespace_terminating(&error) => {
                Err(error.into())
            }
            _ => Ok(Action::AwaitChange),
        }
    }
}
