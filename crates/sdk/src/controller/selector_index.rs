//! Label and selector indexes: objects by selector, and selectors by object, without a list of all.
//!
//! Objects are indexed by each label, selectors by one label and value that they require. A
//! selector that requires no value is indexed under its namespace.

use std::sync::Arc;

use mizzen_object::select::{LabelSelector, SelectorOperator};
use serde::de::DeserializeOwned;

use crate::accessor::Accessor;
use crate::cache::{DecodeError, Entry, Store, by_labels};
use crate::informer::Informer;

const LABELS: &str = "labels";
const SELECTORS: &str = "selectors";

/// Reads the selector of an object; `None` if it selects nothing.
///
/// ```
/// use k8s_openapi::api::core::v1::Service;
/// use mizzen_sdk::controller::{LabelSelector, ReadSelector};
///
/// let read: ReadSelector<Service> = |service| {
///     let labels = service.spec.as_ref()?.selector.as_ref()?;
///     let terms: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
///     LabelSelector::parse(&terms.join(",")).ok()
/// };
/// assert!(read(&Service::default()).is_none());
/// ```
pub type ReadSelector<K> = fn(&K) -> Option<LabelSelector>;

/// Indexes objects by label, for [`select_objects`].
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::controller::{Context, LabelSelector, index_labels, select_objects};
/// use mizzen_sdk::resource::PODS;
///
/// let pods = Context::new(client).informer(&PODS);
/// index_labels(&pods);
/// let selector = LabelSelector::parse("app=web").expect("a selector");
/// assert!(select_objects(&pods, "default", &selector)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn index_labels<K: DeserializeOwned + Send + Sync + 'static>(objects: &Informer<K>) {
    objects.add_index(LABELS, by_labels());
}

/// Indexes the objects of an informer's store by their selector, for [`objects_selecting`]. A store
/// has one such index.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store};
/// use mizzen_sdk::controller::{LabelSelector, index_selectors};
///
/// let store: Store<Object> = Store::new();
/// index_selectors(&store, |service| LabelSelector::parse(service["spec"]["selector"].str()).ok());
/// store.insert(Entry::new(*br#"{"metadata":{"name":"web"},"spec":{"selector":"app=web"}}"#)?);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn index_selectors<K: DeserializeOwned + 'static>(store: &Store<K>, read: ReadSelector<K>) {
    let terms = move |entry: &Entry<K>| {
        let selector = read(&*entry.object().ok()?)?;
        Some(index_terms(entry.key().namespace(), &selector))
    };
    store.add_index(
        SELECTORS,
        Arc::new(move |entry| terms(entry).unwrap_or_default()),
    );
}

/// The objects of a namespace that a selector matches, by name. [`index_labels`] must have been
/// called.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default","labels":{"app":"web"}}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::controller::{Context, LabelSelector, index_labels, select_objects};
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let context = Context::new(client);
/// let configs = context.informer(&CONFIG_MAPS);
/// index_labels(&configs);
/// configs.start();
/// configs.wait_for_sync().await;
/// let selector = LabelSelector::parse("app=web").expect("a selector");
/// assert_eq!(select_objects(&configs, "default", &selector)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn select_objects<K>(
    objects: &Informer<K>,
    namespace: &str,
    selector: &LabelSelector,
) -> Result<Vec<Arc<K>>, DecodeError>
where
    K: Accessor + DeserializeOwned + 'static,
{
    let lister = objects.lister().namespaced(namespace);
    let mut found = Vec::new();
    for term in index_terms(namespace, selector) {
        match term.ends_with('/') {
            true => found.extend(lister.list()?),
            false => found.extend(
                lister
                    .by_index(LABELS, &term)
                    .unwrap_or_else(|| lister.list())?,
            ),
        }
    }
    found.retain(|object| selector.matches(|label| object.label(label)));
    Ok(found)
}

/// The objects of a namespace whose selector matches these labels. [`index_selectors`] must have
/// been called.
///
/// ```
/// use mizzen_sdk::Object;
/// use mizzen_sdk::cache::{Entry, Store};
/// use mizzen_sdk::controller::{LabelSelector, ReadSelector, index_selectors, objects_selecting};
///
/// let budgets: Store<Object> = Store::new(); // that of an informer
/// let selector: ReadSelector<Object> = |budget| LabelSelector::from_value(&budget["spec"]["selector"]);
/// index_selectors(&budgets, selector);
/// let text = r#"{"metadata":{"name":"b","namespace":"shop"},"spec":{"selector":{"matchLabels":{"app":"web"}}}}"#;
/// budgets.insert(Entry::new(text.as_bytes())?);
/// assert_eq!(objects_selecting(&budgets, "shop", &[("app", "web")], selector).len(), 1);
/// assert!(objects_selecting(&budgets, "shop", &[("app", "db")], selector).is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn objects_selecting<K: DeserializeOwned>(
    store: &Store<K>,
    namespace: &str,
    labels: &[(&str, &str)],
    read: ReadSelector<K>,
) -> Vec<Arc<K>> {
    let value_of = |name: &str| {
        let label = labels.iter().find(|(label, _)| *label == name);
        label.map(|(_, value)| *value)
    };
    let is_meant = |object: &K| read(object).is_some_and(|selector| selector.matches(value_of));
    let snapshot = store.snapshot();
    let terms = labels
        .iter()
        .map(|(label, value)| format!("{namespace}/{label}={value}"));
    terms
        .chain([format!("{namespace}/")])
        .flat_map(|term| {
            let found = snapshot.by_index(SELECTORS, &term);
            found
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.object().ok())
                .filter(|object| is_meant(object))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The index keys of a selector.
fn index_terms(namespace: &str, selector: &LabelSelector) -> Vec<String> {
    let asks = selector
        .requirements
        .iter()
        .find_map(|requirement| match &requirement.operator {
            SelectorOperator::In(values) => Some((&requirement.key, values)),
            _ => None,
        });
    match asks {
        Some((label, values)) => values
            .iter()
            .map(|value| format!("{namespace}/{label}={value}"))
            .collect(),
        None => vec![format!("{namespace}/")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_terms(selector: &str, expect: &[&str]) {
        assert_eq!(
            index_terms("a", &LabelSelector::parse(selector).expect("it is one")),
            expect
        );
    }

    #[test]
    fn a_selector_is_indexed_by_a_required_label() {
        check_terms("app=web,tier=front", &["a/app=web"]);
        check_terms("!old,app in (b,c)", &["a/app=b", "a/app=c"]);
        check_terms("!old", &["a/"]);
        check_terms("", &["a/"]);
    }
}
