//! The root CA publisher: every namespace has the ConfigMap kube-root-ca.crt with the API server's
//! CA bundle.

use mizzen_sdk::controller::{Context, Predicate, dynamic};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{CONFIG_MAPS, NAMESPACES};
use mizzen_sdk::write::{is_namespace_terminating, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

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
        return Controller::new(&context);
    };
    let existing = Predicate::new(|event| !matches!(event, Event::Deleted { .. }));
    let configs = context.informer(&CONFIG_MAPS);
    Controller::for_kind(&context, dynamic(&NAMESPACES).filter(existing))
        .watches_events(&CONFIG_MAPS, |event, queue| {
            if event.key().name() == NAME {
                queue.add(Key::cluster(event.key().namespace()));
            }
        })
        .queue_name("root_ca_cert_publisher")
        .reconcile(RootCaPublisher {
            context,
            configs,
            certificate,
        })
}

impl Reconcile for RootCaPublisher {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let known = self.configs.lister().by_key(&Key::new(key.name(), NAME))?;
        let api = &self.context.api;
        let outcome = match plan(known.as_deref(), key.name(), &self.certificate) {
            RootCaPlan::Nothing => return Ok(Action::done()),
            RootCaPlan::Create(config) => api.create(&CONFIG_MAPS, &config).await,
            RootCaPlan::Update(config) => api.update(&CONFIG_MAPS, &config).await,
        };
        match outcome {
            // The namespace is gone or terminating.
            Err(error)
                if known.is_none()
                    && (is_not_found(&error) || is_namespace_terminating(&error)) =>
            {
                Ok(Action::done())
            }
            outcome => outcome.map(|_| Action::done()).map_err(Error::from),
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
