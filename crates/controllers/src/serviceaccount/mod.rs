//! Every namespace has an account by the name of `default`.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use mizzen_sdk::write::is_already_exists;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use crate::refused::is_terminating;
use crate::{After, Context, Error, Reconcile, Work};

const DEFAULT: &str = "default";

struct ServiceAccounts {
    context: Context,
    namespaces: Informer<Object>,
    accounts: Informer<Object>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("service-account-controller");
    let queue = context.queue("serviceaccount");
    let (namespaces, accounts) = (
        context.follow(&NAMESPACES),
        context.follow(&SERVICE_ACCOUNTS),
    );
    let todo = queue.clone();
    namespaces.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    let todo = queue.clone();
    accounts.add_handler(move |event: Event<Object>| {
        if let Event::Deleted { last, .. } = event {
            todo.add(Key::cluster(last.key().namespace()));
        }
    });
    Work::new(
        queue,
        1,
        Arc::new(ServiceAccounts {
            context,
            namespaces,
            accounts,
        }),
    )
}

impl Reconcile for ServiceAccounts {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(namespace) = self.namespaces.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let account = Key::new(key.name(), DEFAULT);
        if namespace["status"]["phase"].str() != "Active"
            || self.accounts.store().get(&account).is_some()
        {
            return Ok(After::Done);
        }
        match self
            .context
            .api
            .create(&SERVICE_ACCOUNTS, &draft(key.name()))
            .await
        {
            Err(error) if !is_already_exists(&error) && !is_terminating(&error) => {
                Err(error.into())
            }
            _ => Ok(After::Done),
        }
    }
}

fn draft(namespace: &str) -> Value {
    let mut account = Value::object();
    account.entry("metadata").set("name", DEFAULT);
    account.entry("metadata").set("namespace", namespace);
    account
}
