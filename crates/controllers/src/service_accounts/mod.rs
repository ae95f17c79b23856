//! The service accounts controller: every namespace has the account `default`.

use mizzen_sdk::controller::Context;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use mizzen_sdk::write::{is_already_exists, is_namespace_terminating};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const DEFAULT: &str = "default";

struct ServiceAccountsController {
    context: ControllerContext,
    namespaces: Informer<Object>,
    accounts: Informer<Object>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("service-account-controller");
    let (namespaces, accounts) = (
        context.informer(&NAMESPACES),
        context.informer(&SERVICE_ACCOUNTS),
    );
    Controller::for_kind(&context, &NAMESPACES)
        .watches_events(&SERVICE_ACCOUNTS, |event, queue| {
            if let Event::Deleted { last, .. } = event {
                queue.add(Key::cluster(last.key().namespace()));
            }
        })
        .queue_name("serviceaccount")
        .reconcile(ServiceAccountsController {
            context,
            namespaces,
            accounts,
        })
}

impl Reconcile for ServiceAccountsController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(namespace) = self.namespaces.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let account = Key::new(key.name(), DEFAULT);
        if namespace["status"]["phase"].str() != "Active"
            || self.accounts.store().get(&account).is_some()
        {
            return Ok(Action::done());
        }
        let account = value!({"metadata": {"name": DEFAULT, "namespace": (key.name())}});
        let api = &self.context.api;
        match api.create(&SERVICE_ACCOUNTS, &account).await {
            Err(error) if !is_already_exists(&error) && !is_namespace_terminating(&error) => {
                Err(error.into())
            }
            _ => Ok(Action::done()),
        }
    }
}
