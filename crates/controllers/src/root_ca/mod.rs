//! Every namespace has the certificate by which the API server is known, so that what runs there can trust it.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, NAMESPACES};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::refused::is_terminating;
use crate::{After, Context, Error, Reconcile, Work};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

struct Publisher {
    context: Context,
    configs: Informer<Object>,
    certificate: String,
}

/// Sets up the loop. Without a certificate there is nothing to do.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("root-ca-cert-publisher");
    let Some(certificate) = context.options.root_ca.clone() else {
        return Work::default();
    };
    let queue = context.queue("root_ca_cert_publisher");
    let configs = context.follow(&CONFIG_MAPS);
    let todo = queue.clone();
    configs.add_handler(move |event: Event<Object>| {
        if event.key().name() == NAME {
            todo.add(Key::cluster(event.key().namespace()));
        }
    });
    let todo = queue.clone();
    context
        .follow(&NAMESPACES)
        .add_handler(move |event: Event<Object>| {
            if !matches!(event, Event::Deleted { .. }) {
                todo.add(event.key().clone());
            }
        });
    Work::new(
        queue,
        1,
        Arc::new(Publisher {
            context,
            configs,
            certificate,
        }),
    )
}

impl Reconcile for Publisher {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let known = self.configs.lister().by_key(&Key::new(key.name(), NAME))?;
        let api = &self.context.api;
        let outcome = match plan(known.as_deref(), key.name(), &self.certificate) {
            Plan::Nothing => return Ok(After::Done),
            Plan::Create(config) => api.create(&CONFIG_MAPS, &config).await,
            Plan::Update(config) => api.update(&CONFIG_MAPS, &config).await,
        };
        match outcome {
            // The namespace is gone, or about to go.
            Err(error) if known.is_none() && (is_not_found(&error) || is_terminating(&error)) => {
                Ok(After::Done)
            }
            outcome => outcome.map(|_| After::Done).map_err(Error::from),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Plan {
    Nothing,
    Create(Value),
    Update(Object),
}

fn plan(known: Option<&Object>, namespace: &str, certificate: &str) -> Plan {
    let data = value!({ "ca.crt": certificate });
    let Some(known) = known else {
        let metadata = value!({ "name": NAME, "namespace": namespace, "annotations": { "kubernetes.io/description": TEXT } });
        return Plan::Create(value!({ "metadata": metadata, "data": data }));
    };
    if known["data"] == data
        && known
            .annotation(DESCRIPTION)
            .is_some_and(|text| !text.is_empty())
    {
        return Plan::Nothing;
    }
    let mut config = known.clone();
    config.set("data", data);
    config
        .entry("metadata")
        .entry("annotations")
        .set(DESCRIPTION, TEXT);
    Plan::Update(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(known: &str, is_good: bool) {
        let known = Object::parse(known.as_bytes()).unwrap();
        match plan(Some(&known), "shop", "CA") {
            Plan::Nothing => assert!(is_good),
            Plan::Update(config) => {
                assert!(!is_good);
                assert_eq!(json::to_string(&config["data"]), r#"{"ca.crt":"CA"}"#);
                assert_eq!(config.annotation(DESCRIPTION), Some(TEXT));
            }
            Plan::Create(_) => panic!("it is there"),
        }
    }

    #[test]
    fn what_people_changed_is_put_right() {
        check(
            r#"{"metadata":{"annotations":{"kubernetes.io/description":"mine"}},"data":{"ca.crt":"CA"}}"#,
            true,
        );
        check(r#"{"metadata":{},"data":{"ca.crt":"CA"}}"#, false);
        check(
            r#"{"metadata":{"annotations":{"kubernetes.io/description":"mine"}},"data":{"ca.crt":"CB"}}"#,
            false,
        );
        check(
            r#"{"metadata":{"annotations":{"kubernetes.io/description":"mine"}},"data":{"ca.crt":"CA","x":"y"}}"#,
            false,
        );
    }
}
