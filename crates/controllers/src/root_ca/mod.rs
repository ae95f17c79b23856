//! The root CA publisher: every namespace has the ConfigMap kube-root-ca.crt with the API server's
//! CA bundle.

use std::sync::Arc;

use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, NAMESPACES};
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::common::api_errors::is_namespace_terminating;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

struct RootCaPublisher {
    context: ControllerContext,
    configs: Informer<Object>,
    certificate: String,
}

/// Creates the controller. Without a CA bundle it does nothing.
pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("root-ca-cert-publisher");
    let Some(certificate) = context.options.root_ca.clone() else {
        return Controller::default();
    };
    let queue = context.queue("root_ca_cert_publisher");
    let configs = context.informer(&CONFIG_MAPS);
    let todo = queue.clone();
    configs.add_handler(move |event: Event<Object>| {
        if event.key().name() == NAME {
            todo.add(Key::cluster(event.key().namespace()));
        }
    });
    let todo = queue.clone();
    context
        .informer(&NAMESPACES)
        .add_handler(move |event: Event<Object>| {
            if !matches!(event, Event::Deleted { .. }) {
                todo.add(event.key().clone());
            }
        });
    let reconciler = RootCaPublisher {
        context,
        configs,
        certificate,
    };
    Controller::new(queue, 1, Arc::new(reconciler))
}

impl Reconcile for RootCaPublisher {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let known = self.configs.lister().by_key(&Key::new(key.name(), NAME))?;
        let api = &self.context.api;
        let outcome = match plan(known.as_deref(), key.name(), &self.certificate) {
            RootCaPlan::Nothing => return Ok(Action::AwaitChange),
            RootCaPlan::Create(config) => api.create(&CONFIG_MAPS, &config).await,
            RootCaPlan::Update(config) => api.update(&CONFIG_MAPS, &config).await,
        };
        match outcome {
            // The namespace is gone or terminating.
            Err(error)
                if known.is_none()
                    && (is_not_found(&error) || is_namespace_terminating(&error)) =>
            {
                Ok(Action::AwaitChange)
            }
            outcome => outcome.map(|_| Action::AwaitChange).map_err(Error::from),
        }
    }
}

#[derive(Debug, PartialEq)]
enum RootCaPlan {
    Nothing,
    Create(Value),
    Update(Object),
}

fn plan(known: Option<&Object>, namespace: &str, certificate: &str) -> RootCaPlan {
    let data = value!({ "ca.crt": certificate });
    let Some(known) = known else {
        let metadata = value!({ "name": NAME, "namespace": namespace, "annotations": { "kubernetes.io/description": TEXT } });
        return RootCaPlan::Create(value!({ "metadata": metadata, "data": data }));
    };
    if known["data"] == data
        && known
            .annotation(DESCRIPTION)
            .is_some_and(|text| !text.is_empty())
    {
        return RootCaPlan::Nothing;
    }
    let mut config = known.clone();
    config.set("data", data);
    config
        .entry("metadata")
        .entry("annotations")
        .set(DESCRIPTION, TEXT);
    RootCaPlan::Update(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(known: &str, is_good: bool) {
        let known = Object::parse(known.as_bytes()).unwrap();
        match plan(Some(&known), "shop", "CA") {
            RootCaPlan::Nothing => assert!(is_good),
            RootCaPlan::Update(config) => {
                assert!(!is_good);
                assert_eq!(json::to_string(&config["data"]), r#"{"ca.crt":"CA"}"#);
                assert_eq!(config.annotation(DESCRIPTION), Some(TEXT));
            }
            RootCaPlan::Create(_) => panic!("it is there"),
        }
    }

    #[test]
    fn changes_by_users_are_reverted() {
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
